/* Files mapped into memory for reading, and what becomes of them when they are cut.
 *
 * A page of a mapping that its file does not have any more, or that the disk does not give, is a
 * SIGBUS, which would end the process wherever it read. A handler, installed with each
 * mapping and check, puts zeros in the place of the pages from there on and marks the mapping, so
 * that the reader goes on; who reads checks afterwards whether what was read was the file. A SIGBUS
 * anywhere else does what it did before. The table that the handler looks at is the one thing here
 * that belongs to the process; a mapping is opened and closed by one thread and read by any.
 */
#ifndef OINFER_BASE_MAPPING_H
#define OINFER_BASE_MAPPING_H

#include <stddef.h>

#include "engine/base/err.h"

struct mapping;

/* Maps n > 0 bytes of the open file fd, which stays the caller's. ST_IO, ST_NO_MEMORY. */
enum status mapping_open(int fd, size_t n, struct mapping **out, struct err *e);
void mapping_close(struct mapping *m); /* accepts NULL */
const void *mapping_bytes(const struct mapping *m);
int mapping_fd(const struct mapping *m); /* a descriptor of the file, the mapping's own */
/* ST_IO when the file is shorter now than it was, or pages of it could not be read: what was read
 * from the mapping may be zeros. Any thread. */
enum status mapping_check(const struct mapping *m, struct err *e);

#endif
