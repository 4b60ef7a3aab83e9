/* tune.json: the tune store on disk, shared by oinferd and oinfer.
 *
 *   {"format":"oinfer.tune","version":1,"records":[{"op":"matmul","variant":"cpu_panel",
 *     "dtype":"f32","shape":{"m":1024,...},"device":"...","driver":"...","source":"<16 hex
 * digits>", "tuner":1,"settings":{"ROWS":12},"ns":1.2e6,"standard_ns":1.3e6,"work":2.1e9}]}
 *
 * Read whole, written whole: to a temporary file of mode 0600 that is then renamed, so that readers
 * see all or nothing. A file that cannot be read is ignored with one warning, and replaced by the
 * next write. Any thread; callers of tune_file_add on one path take turns.
 */
#ifndef OINFER_SERVER_TUNE_FILE_H
#define OINFER_SERVER_TUNE_FILE_H

#include "engine/tune/store.h"

#define TUNE_FILE_MAX_BYTES (16u << 20)

/* "FOLDER/tune.json" in out[n]; NULL when it does not fit or folder is NULL. */
const char *tune_file_path(const char *folder, char *out, size_t n);
/* Adds the file's records to the store; none when it is absent, broken or of another format. */
void tune_file_load(const char *path, struct tune_store *s);
/* Adds records to what the file has now. ST_IO names the path. */
enum status tune_file_add(const char *path, const struct tune_store *s, struct err *e);

#endif
