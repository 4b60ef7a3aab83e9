/* Boxes. The daemons work side by side, each on its own machine; the local engine comes after them.
 */
#include "server/cli/box.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "server/cli/loaded.h"
#include "server/ops/result.h"

#define PATH_BYTES   1024
#define ANSWER_BYTES ((size_t)256 << 20)
#define CONNECT_S    10L
#define WAIT_MS      1000
#define LOCAL_MS     ((uint64_t)24 * 3600 * 1000) /* deadline of the local engine */

struct box {
    const char *url, *device;
    struct device_list *devices; /* of the local one */
    struct device *d;
    CURL *curl; /* of the others */
    struct curl_slist *headers;
    char address[PATH_BYTES];
    char *body;
    struct strbuf answer;
};

/* ---- the engine of this machine ---- */

static enum status open_local(struct box *b, struct err *e)
{
    char cache[PATH_BYTES];
    uint32_t index, n = 1;
    const struct device_options options = {.cache_dir = loaded_cache_folder(cache, sizeof cache),
                                           .trial_command = "/proc/self/exe"};
    enum status status = device_list_cache_dir(options.cache_dir, e);
    if (status == ST_OK)
        status = device_list_open(0, &b->devices, e);
    if (status == ST_OK)
        status = device_select(b->devices, b->device, &index, &n, e);
    return status == ST_OK ? device_open(b->devices, index, &options, &b->d, e) : status;
}

static enum status measure_local(struct box *b, enum api_op op, struct box_answer *out)
{
    struct op_request *r = NULL;
    struct fault f;
    struct opbench_result *result = mem_zalloc(sizeof *result);
    if (result == NULL)
        return err_set(&out->error, ST_NO_MEMORY, "out of memory");
    enum status status = op_request_parse(op, b->body, strlen(b->body), NULL, 0, LOCAL_MS, &r, &f);
    if (status == ST_OK) {
        const uint64_t start_ns = clock_now_ns();
        const struct op_run run = {.device = device_info(b->d)};
        status = opbench_run(b->d, &r->bench, result, &out->error);
        if (status == ST_OK) {
            struct op_run timed = run;
            timed.run_ns = clock_now_ns() - start_ns;
            op_result_json(&b->answer, r, result, &timed);
        }
    } else {
        err_set(&out->error, status, "%s", f.message);
    }
    opbench_close(result);
    mem_free(result);
    op_request_close(r);
    return status;
}

/* ---- daemons ---- */

static size_t on_bytes(char *bytes, size_t size, size_t n, void *user)
{
    struct box *b = user;
    return strbuf_append(&b->answer, bytes, size * n) ? size * n : 0;
}

static enum status open_remote(struct box *b, struct err *e)
{
    const char *key = getenv("OINFER_API_KEY");
    b->curl = curl_easy_init();
    b->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (key != NULL && b->headers != NULL) {
        char header[PATH_BYTES];
        snprintf(header, sizeof header, "Authorization: Bearer %s", key);
        struct curl_slist *longer = curl_slist_append(b->headers, header);
        if (longer == NULL)
            curl_slist_free_all(b->headers);
        b->headers = longer;
    }
    if (b->curl == NULL || b->headers == NULL)
        return err_set(e, ST_NO_MEMORY, "%s: out of memory", b->url);
    curl_easy_setopt(b->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(b->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(b->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(b->curl, CURLOPT_HTTPHEADER, b->headers);
    curl_easy_setopt(b->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(b->curl, CURLOPT_WRITEDATA, b);
    return ST_OK;
}

static void prepare_remote(struct box *b, const char *op)
{
    const size_t n = strlen(b->url);
    snprintf(b->address, sizeof b->address, "%.*s/v1/ops/%s",
             (int)(n > 0 && b->url[n - 1] == '/' ? n - 1 : n), b->url, op);
    curl_easy_setopt(b->curl, CURLOPT_PRIVATE, NULL);
    curl_easy_setopt(b->curl, CURLOPT_URL, b->address);
    curl_easy_setopt(b->curl, CURLOPT_POSTFIELDS, b->body);
}

/* Runs all transfers to their ends. */
static void run_remotes(CURLM *multi)
{
    int running = 1;
    while (running > 0 && curl_multi_perform(multi, &running) == CURLM_OK && running > 0)
        curl_multi_poll(multi, NULL, 0, WAIT_MS, NULL);
}

/* How the transfer of a box ended. */
static enum status transfer_status(CURLM *multi, const struct box *b, struct err *e)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(multi, &left)) != NULL)
        if (message->msg == CURLMSG_DONE)
            curl_easy_setopt(message->easy_handle, CURLOPT_PRIVATE,
                             message->data.result == CURLE_OK
                                 ? NULL
                                 : (void *)curl_easy_strerror(message->data.result));
    char *problem = NULL;
    curl_easy_getinfo(b->curl, CURLINFO_PRIVATE, &problem);
    return problem == NULL ? ST_OK : err_set(e, ST_IO, "%s: %s", b->url, problem);
}

/* ---- both ---- */

enum status box_open(const char *url, const char *device, struct box **out, struct err *e)
{
    struct box *b = mem_zalloc(sizeof *b);
    *out = NULL;
    if (b == NULL)
        return err_set(e, ST_NO_MEMORY, "%s: out of memory", url);
    b->url = url;
    b->device = device;
    strbuf_init(&b->answer, ANSWER_BYTES);
    const enum status status = strcmp(url, BOX_LOCAL) == 0 ? open_local(b, e) : open_remote(b, e);
    if (status != ST_OK) {
        box_close(b);
        return status;
    }
    *out = b;
    return ST_OK;
}

void box_close(struct box *b)
{
    if (b == NULL)
        return;
    device_close(b->d);
    device_list_close(b->devices);
    if (b->curl != NULL)
        curl_easy_cleanup(b->curl);
    curl_slist_free_all(b->headers);
    cJSON_free(b->body);
    strbuf_free(&b->answer);
    mem_free(b);
}

const char *box_name(const struct box *b)
{
    return b->d != NULL ? device_info(b->d)->name : b->url;
}

void box_answer_free(struct box_answer *a)
{
    cJSON_Delete(a->result);
    a->result = NULL;
}

/* The box's text as a result, or its error. */
static void parse_answer(struct box *b, struct box_answer *out)
{
    cJSON *tree =
        b->answer.failed ? NULL : cJSON_ParseWithLength(strbuf_text(&b->answer), b->answer.length);
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(tree, "error");
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(error, "message");
    if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(tree, "results"))) {
        out->result = tree;
        return;
    }
    err_set(&out->error, ST_FORMAT, "%s",
            cJSON_IsString(message) ? message->valuestring : "the answer is not oinferd's");
    cJSON_Delete(tree);
}

static void prepare(struct box *b, const cJSON *body)
{
    cJSON *own = cJSON_Duplicate(body, true);
    if (b->d == NULL && b->device[0] != '\0')
        cJSON_AddStringToObject(own, "device", b->device);
    cJSON_free(b->body);
    b->body = cJSON_PrintUnformatted(own);
    cJSON_Delete(own);
    strbuf_free(&b->answer);
}

void boxes_run(struct box *const *boxes, uint32_t n, const char *op, const cJSON *body,
               struct box_answer *answers)
{
    CURLM *multi = curl_multi_init();
    const enum api_op id = api_op_find(op);
    for (uint32_t i = 0; i < n; i++) {
        answers[i] = (struct box_answer){0};
        prepare(boxes[i], body);
        if (multi == NULL || boxes[i]->body == NULL)
            err_set(&answers[i].error, ST_NO_MEMORY, "out of memory");
        else if (boxes[i]->d == NULL)
            prepare_remote(boxes[i], op);
        if (answers[i].error.status == ST_OK && boxes[i]->d == NULL)
            curl_multi_add_handle(multi, boxes[i]->curl);
    }
    if (multi != NULL)
        run_remotes(multi);
    for (uint32_t i = 0; i < n; i++) {
        if (answers[i].error.status != ST_OK)
            continue;
        enum status status;
        if (boxes[i]->d == NULL)
            status = transfer_status(multi, boxes[i], &answers[i].error);
        else if (id == API_COUNT)
            status = err_set(&answers[i].error, ST_NOT_FOUND, "there is no operator \"%s\"", op);
        else
            status = measure_local(boxes[i], id, &answers[i]);
        if (status == ST_OK)
            parse_answer(boxes[i], &answers[i]);
    }
    for (uint32_t i = 0; i < n && multi != NULL; i++)
        if (boxes[i]->d == NULL)
            curl_multi_remove_handle(multi, boxes[i]->curl);
    curl_multi_cleanup(multi);
}
