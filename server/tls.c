/* Reads PEM files and has GnuTLS, which libmicrohttpd serves with, check that they fit. */
#include "server/tls.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "server/keys.h"

#define PEM_MAX_BYTES ((size_t)256 * 1024)

struct tls {
    char cert[PEM_MAX_BYTES], key[PEM_MAX_BYTES]; /* NUL-terminated */
};

static enum status read_pem(const char *path, bool secret, char *out, struct err *e)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    enum status status = secret ? keys_check_mode(file, path, e) : ST_OK;
    size_t n = status == ST_OK ? fread(out, 1, PEM_MAX_BYTES, file) : 0;
    if (status == ST_OK && ferror(file))
        status = err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    else if (status == ST_OK && n == PEM_MAX_BYTES)
        status = err_set(e, ST_INVALID, "%s: has %zu bytes or more, which no PEM file needs", path,
                         PEM_MAX_BYTES);
    out[n < PEM_MAX_BYTES ? n : PEM_MAX_BYTES - 1] = '\0';
    fclose(file);
    return status;
}

/* Whether the key is that of the first certificate. */
static enum status check_pair(const struct tls *t, const char *cert_path, const char *key_path,
                              struct err *e)
{
    gnutls_certificate_credentials_t credentials;
    gnutls_datum_t cert = {(unsigned char *)t->cert, (unsigned)strlen(t->cert)};
    gnutls_datum_t key = {(unsigned char *)t->key, (unsigned)strlen(t->key)};
    if (gnutls_certificate_allocate_credentials(&credentials) != GNUTLS_E_SUCCESS)
        return err_set(e, ST_NO_MEMORY, "TLS: out of memory");
    int status = gnutls_certificate_set_x509_key_mem(credentials, &cert, &key, GNUTLS_X509_FMT_PEM);
    gnutls_certificate_free_credentials(credentials);
    if (status < 0)
        return err_set(e, ST_INVALID, "%s and %s: %s", cert_path, key_path,
                       gnutls_strerror(status));
    return ST_OK;
}

enum status tls_open(const char *cert_path, const char *key_path, struct tls **out, struct err *e)
{
    if (cert_path[0] == '\0' || key_path[0] == '\0')
        return err_set(e, ST_INVALID, "tls-cert and tls-key belong together; %s is missing",
                       cert_path[0] == '\0' ? "tls-cert" : "tls-key");
    struct tls *t = mem_zalloc(sizeof *t);
    if (t == NULL)
        return err_set(e, ST_NO_MEMORY, "TLS: out of memory");
    enum status status = read_pem(cert_path, false, t->cert, e);
    if (status == ST_OK)
        status = read_pem(key_path, true, t->key, e);
    if (status == ST_OK)
        status = check_pair(t, cert_path, key_path, e);
    if (status != ST_OK) {
        tls_close(t);
        return status;
    }
    *out = t;
    return ST_OK;
}

void tls_close(struct tls *t)
{
    if (t != NULL)
        explicit_bzero(t, sizeof *t);
    mem_free(t);
}

const char *tls_cert(const struct tls *t)
{
    return t->cert;
}

const char *tls_key(const struct tls *t)
{
    return t->key;
}
