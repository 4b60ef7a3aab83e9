/* Threads that bring pieces of files, or of other memory, into memory, several at a time, in the
 * order they were asked for. A copy by one thread is several times slower than what a bus to a
 * device takes.
 *
 * An object belongs to one thread, which reads along while it waits, where the others are few. They
 * sleep when there is nothing to read, and take no signals.
 */
#ifndef OINFER_BASE_READERS_H
#define OINFER_BASE_READERS_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define READERS_PENDING 8 /* pieces asked for and not waited for, at most */

struct readers;

/* What pieces are read from: memory, or an open file where that is NULL. */
struct readers_source {
    int fd;
    const void *memory;
};

/* n_threads beside the caller's own; 0 is allowed. Fewer are no error where the system refuses
 * them. ST_NO_MEMORY. */
enum status readers_open(uint32_t n_threads, struct readers **out, struct err *e);
void readers_close(struct readers *r); /* accepts NULL; waits for what is being read */
/* Begins to read n bytes of the source from its byte `offset` on to dst; source and dst stay as
 * they are until the piece was waited for. At most READERS_PENDING are under way. */
void readers_begin(struct readers *r, struct readers_source from, uint64_t offset, void *dst,
                   size_t n);
/* Waits for the oldest piece. ST_IO: the file ends before, or could not be read (the place, the
 * count and why); other pieces go on. */
enum status readers_wait(struct readers *r, struct err *e);

#endif
