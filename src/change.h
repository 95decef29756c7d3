/*-------------------------------------------------------------------------
 *
 * change.h
 *	  The steps of every change of a lease: the protocol.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_CHANGE_H
#define LEASE_CHANGE_H

#include "lease.h"

#include "event.h"
#include "store.h"

extern void change_begin(const char *name);
extern void change_begin_transition(const char *name);
extern bool change_take_fence(const char *name, bool nowait, int *blocker);
extern void change_drop_fence(const char *name);
extern bool change_read(const char *name, Reading *reading);
extern bool change_await_updater(const LeaseRow *row, int *blocker);
extern void change_warn_of_step(const Reading *reading);
extern void change_rebase(Reading *reading);
extern bool change_write(LeaseRow *row);
extern bool change_write_transition(LeaseRow *row, EventList *events);
extern void change_insert(LeaseRow *row, EventList *events);
extern bool change_remove(LeaseRow *row, EventList *events);
extern void change_give_up(void);
extern void change_give_up_transition(void);

#endif							/* LEASE_CHANGE_H */
