/* The certificate and private key that HTTPS is served with: read once, checked, held as PEM text.
 * Immutable afterwards: any thread. */
#ifndef OINFER_SERVER_TLS_H
#define OINFER_SERVER_TLS_H

#include "engine/base/err.h"

struct tls;
/* Reads both files; either path empty is ST_INVALID, for they belong together. The key must not be
 * readable by others nor writable by the group; ST_INVALID also when the two do not fit or are no
 * PEM. */
enum status tls_open(const char *cert_path, const char *key_path, struct tls **out, struct err *e);
void tls_close(struct tls *t); /* accepts NULL; the key is wiped */
const char *tls_cert(const struct tls *t);
const char *tls_key(const struct tls *t);

#endif
