/* The file of `oinfer tune --record`: a line for every point measured, of any number of calls.
 *
 * A file that exists is continued: its whole lines are points known before, a last one that was cut
 * short is dropped.
 */
#ifndef OINFER_CLI_POINTS_H
#define OINFER_CLI_POINTS_H

#include <stdio.h>

#include "engine/tune/job.h"

#define POINTS_MAX 65536 /* of a file */

struct points {
    FILE *file;
    struct tune_known *known; /* [n_known] points of the file as it was */
    uint32_t n_known;
};

/* ST_INVALID: the file is something else; ST_IO: it cannot be read or written. Close it in any
 * case.
 */
enum status points_open(const char *path, struct points *p, struct err *e);
/* Writes the last point of a job, unless it was known. */
void points_add(struct points *p, const struct tune_progress *progress);
/* ST_IO: something could not be written. */
enum status points_close(struct points *p, struct err *e);

#endif
