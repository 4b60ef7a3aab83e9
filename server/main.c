/* oinferd: reads its configuration, opens what it needs in order, serves, and closes it in reverse.
 * Whatever is wrong is one sentence on standard error and a non-zero exit status. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "server/notify.h"
#include "server/service.h"

#define TEXT_CEILING_BYTES ((size_t)1 << 20)

enum { EXIT_CONFIG = 2 };

extern char **environ;

/* ---- small things that must be right before anything is opened ---- */

/* Prints what --help and the like ask for. */
static void print_text(enum config_action action)
{
    struct strbuf text;
    strbuf_init(&text, TEXT_CEILING_BYTES);
    if (action == CONFIG_SHOW_HELP)
        config_print_help("oinferd", &text);
    else if (action == CONFIG_SHOW_DEFAULTS)
        config_print_defaults(&text);
    else
        strbuf_puts(&text, "oinferd " OINFER_VERSION "\n");
    fputs(strbuf_text(&text), stdout);
    strbuf_free(&text);
}

/* Makes a folder and those above it, each for the owner only; 0 or -1 with errno set. */
static int make_folders(char *path)
{
    for (char *p = path + 1; *p != '\0'; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        int made = mkdir(path, 0700);
        *p = '/';
        if (made != 0 && errno != EEXIST)
            return -1;
    }
    struct stat info;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return -1;
    if (stat(path, &info) != 0)
        return -1;
    errno = S_ISDIR(info.st_mode) ? EACCES : ENOTDIR;
    return S_ISDIR(info.st_mode) && access(path, R_OK | W_OK | X_OK) == 0 ? 0 : -1;
}

/* A variable of the environment; set but empty is not set. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The folder for compiled kernels: the option, else systemd's, else the user's. NULL in `out[0]`:
 * none can be had, and the daemon runs without. */
static const char *find_cache(const struct config *c, char *out, size_t size)
{
    const char *systemd = variable("CACHE_DIRECTORY");
    const char *xdg = variable("XDG_CACHE_HOME");
    const char *home = variable("HOME");
    if (c->cache_dir[0] != '\0')
        snprintf(out, size, "%s", c->cache_dir);
    else if (systemd != NULL)
        snprintf(out, size, "%s", systemd);
    else if (xdg != NULL && xdg[0] == '/')
        snprintf(out, size, "%s/oinfer", xdg);
    else if (home != NULL && home[0] == '/')
        snprintf(out, size, "%s/.cache/oinfer", home);
    else
        return NULL;
    if (make_folders(out) == 0)
        return out;
    char folder[1024], reason[256];
    log_warn("no cache folder=%s reason=%s", log_quote(folder, sizeof folder, out),
             log_quote(reason, sizeof reason, strerror(errno)));
    return NULL;
}

/* Whether standard error is the journal: systemd says which file that would be. */
static bool logs_to_journal(void)
{
    char own[64];
    struct stat info;
    const char *journal = getenv("JOURNAL_STREAM");
    if (journal == NULL || fstat(STDERR_FILENO, &info) != 0)
        return false;
    snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)info.st_dev, (uintmax_t)info.st_ino);
    return strcmp(own, journal) == 0;
}

/* Anything but loopback needs keys, unless an option says that it does not. */
static enum status check_exposure(const struct config *c, const struct listen_address *address,
                                  struct err *e)
{
    if (address->is_loopback || c->api_key_file[0] != '\0' || c->open_without_keys)
        return ST_OK;
    return err_set(
        e, ST_INVALID,
        "%s is not a loopback address: give --api-key-file, or --open to serve everybody",
        address->text);
}

/* The socket that the service manager has passed, else one of our own on the configured address. */
static enum status find_socket(const struct config *c, int *fd, struct listen_address *address,
                               struct err *e)
{
    int first;
    int n = notify_listen_fds(&first);
    if (n == 0)
        return listen_open(c->host, (uint16_t)c->port, fd, address, e);
    if (n != 1)
        return n < 0 ? err_set(e, ST_IO, "the passed sockets cannot be read: %s", strerror(-n))
                     : err_set(e, ST_INVALID, "%d sockets were passed; one is served", n);
    enum status status = listen_adopt(first, address, e);
    if (status != ST_OK)
        return status;
    *fd = first;
    log_info("socket was passed address=%s port=%u", address->text, address->port);
    return ST_OK;
}

/* What the configuration is read from, at the start and at each reload. */
struct command_line {
    int argc;
    char **argv;
};

static enum status read_config(void *user, struct config **out, struct strbuf *problems)
{
    const struct command_line *line = user;
    enum config_action action;
    return config_load(line->argc, line->argv, environ, out, &action, problems);
}

/* ---- the list and its mirror image ---- */

static enum status choose_devices(const struct config *c, struct service_options *o, struct err *e)
{
    const char *hint = device_list_hint(o->devices);
    o->n_devices = WORKERS_MAX;
    enum status status = device_select(o->devices, strcmp(c->device, "auto") == 0 ? "" : c->device,
                                       o->device_indices, &o->n_devices, e);
    char quoted[2048];
    if (status == ST_OK && hint[0] != '\0')
        log_warn("no OpenCL device hint=%s", log_quote(quoted, sizeof quoted, hint));
    return status;
}

/* Opens everything and serves; with `check` stops short of devices and sockets. */
static enum status run(struct config *c, const struct command_line *line, bool check, struct err *e)
{
    static struct service service; /* large, and there is one */
    struct service_options options = {
        .config = c, .read_config = read_config, .user = (void *)line, .listen_fd = -1};
    struct hosted_models models = {0};
    struct keys *keys = NULL;
    struct tls *tls = NULL;
    struct device_list *devices = NULL;
    char cache[4096], quoted[2 * ERR_TEXT_BYTES];

    enum status status = ST_OK;
    if (c->api_key_file[0] != '\0')
        status = keys_open(c->api_key_file, &keys, e);
    if (status != ST_OK)
        return status;
    if (c->tls_cert[0] != '\0' || c->tls_key[0] != '\0')
        status = tls_open(c->tls_cert, c->tls_key, &tls, e);
    if (status != ST_OK)
        goto close_keys;
    status = hosted_open(c->model.items, c->model.count, (uint32_t)c->ctx_tokens, &models, e);
    if (status != ST_OK)
        goto close_tls;
    status = check ? listen_resolve(c->host, (uint16_t)c->port, &options.address, e)
                   : find_socket(c, &options.listen_fd, &options.address, e);
    if (status != ST_OK)
        goto close_models;
    status = check_exposure(c, &options.address, e);
    if (status != ST_OK || check)
        goto close_socket;
    for (uint32_t i = 0; i < c->unknown_variables.count; i++)
        log_warn("variable is no option name=%s",
                 log_quote(cache, sizeof cache, c->unknown_variables.items[i]));
    options.cache_dir = find_cache(c, cache, sizeof cache);
    if (device_list_cache_dir(options.cache_dir, e) != ST_OK) {
        log_warn("no cache reason=%s", log_quote(quoted, sizeof quoted, e->text));
        options.cache_dir = NULL;
    }
    status = device_list_open((uint32_t)c->threads, &devices, e);
    if (status != ST_OK)
        goto close_socket;
    options.devices = devices;
    options.models = &models;
    options.keys = keys;
    options.tls = tls;
    status = choose_devices(c, &options, e);
    if (status != ST_OK)
        goto close_devices;
    status = service_open(&service, &options, e); /* takes the socket over */
    options.listen_fd = -1;
    if (status != ST_OK)
        goto close_devices;
    status = service_run(&service, e);
    service_close(&service);
close_devices:
    device_list_close(devices);
close_socket:
    if (options.listen_fd >= 0)
        close(options.listen_fd);
close_models:
    hosted_close(&models);
close_tls:
    tls_close(tls);
close_keys:
    keys_close(keys);
    return status;
}

int main(int argc, char **argv)
{
    int child = engine_child_main(argc, argv);
    if (child >= 0)
        return child;
    static const enum log_level levels[] = {LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG};
    struct strbuf problems;
    struct config *config;
    enum config_action action;
    struct err e;
    strbuf_init(&problems, TEXT_CEILING_BYTES);
    enum status status = config_load(argc, argv, environ, &config, &action, &problems);
    if (status != ST_OK) {
        fputs(status == ST_INVALID ? strbuf_text(&problems) : "oinferd: out of memory\n", stderr);
        strbuf_free(&problems);
        return EXIT_CONFIG;
    }
    strbuf_free(&problems);
    if (config == NULL) {
        print_text(action);
        return EXIT_SUCCESS;
    }
    log_init(levels[config->log_level], logs_to_journal());
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* until the service reloads on it */
    request_init();
    const struct command_line line = {argc, argv};
    status = run(config, &line, action == CONFIG_CHECK, &e);
    config_close(config);
    if (status != ST_OK) {
        fprintf(stderr, "oinferd: %s\n", e.text);
        if (action == CONFIG_RUN)
            notify_status(e.text);
        return EXIT_FAILURE;
    }
    if (action == CONFIG_CHECK)
        puts("The configuration is in order.");
    return EXIT_SUCCESS;
}
