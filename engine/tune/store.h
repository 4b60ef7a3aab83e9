/* The store: what searches found, on whatever device, in memory.
 *
 * A record says that on a device and driver a variant, built from a given source, was fastest for a
 * shape with certain settings. A newer record of the same variant, dtype, device and class of
 * shapes replaces an older one. Records come from files and so from anyone: each is checked for its
 * form when it is added, and for what it means (variant, settings, source) when it is put to use
 * (tuned.h). One thread at a time.
 */
#ifndef OINFER_TUNE_STORE_H
#define OINFER_TUNE_STORE_H

#include "engine/base/strbuf.h"
#include "engine/tensor/dtype.h"
#include "engine/tune/shape.h"
#include "engine/tune/space.h"
#include "engine/tune/tuner.h"

#define STORE_MAX_RECORDS 4096 /* then the oldest go */
#define RECORD_TEXT_BYTES 1024

struct tune_record {
    struct shape shape; /* that was measured; its op */
    char variant[32];
    enum dtype dtype;
    char device[128], driver[64];
    uint64_t source;                 /* variant_source_hash */
    uint32_t version;                /* TUNER_VERSION */
    char settings[SPACE_TEXT_BYTES]; /* "ROWS=2 LWS=64"; "" where there is nothing to set */
    double ns, standard_ns;          /* of a call so, and with the row's own values (0: unknown) */
    double work;                     /* of that call: op_flops, or op_bytes where it has none */
};

struct tune_store;
enum status store_open(struct tune_store **out, struct err *e);
void store_close(struct tune_store *s); /* accepts NULL */
/* Adds a copy. ST_INVALID names the field. */
enum status store_add(struct tune_store *s, const struct tune_record *r, struct err *e);
/* In the order of adding; NULL past the end. Borrowed until the next change. */
const struct tune_record *store_at(const struct tune_store *s, uint32_t i);
/* Copies all records of `from`. */
enum status store_merge(struct tune_store *s, const struct tune_store *from, struct err *e);

/* A record as one line of fields between tabs, for the metadata of model files. */
enum status record_write(const struct tune_record *r, char out[RECORD_TEXT_BYTES], struct err *e);
/* ST_FORMAT: what is wrong with which field. Nothing of the text is trusted. */
enum status record_read(const char *text, struct tune_record *out, struct err *e);
/* Settings text to settings; names point into `names`. ST_INVALID: not of that form. */
enum status record_settings(const char *text, struct setting out[CONFIG_MAX_TUNABLES], uint32_t *n,
                            char names[CONFIG_MAX_TUNABLES][24], struct err *e);

#endif
