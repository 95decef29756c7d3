/*-------------------------------------------------------------------------
 *
 * text.h
 *	  Text that goes to the server as JSON, to the output, and to the log.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef TEXT_H
#define TEXT_H

#include "pqexpbuffer.h"

extern void text_append(PQExpBuffer buffer, const char *string);
extern void text_append_json(PQExpBuffer buffer, const char *string);
extern char *text_json_list(char *const texts[], int count);
extern void text_print(const char *string);
extern void text_flush(void);

#endif							/* TEXT_H */
