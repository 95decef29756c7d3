/*-------------------------------------------------------------------------
 *
 * signals.h
 *	  Signals as something that an event loop can wait for.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIGNALS_H
#define SIGNALS_H

extern void signals_open(void);
extern void signals_reopen(void);
extern int	signals_descriptor(void);
extern int	signals_next(void);
extern void signals_hold(void);
extern void signals_let_go(void);
extern void signals_restore(void);

#endif							/* SIGNALS_H */
