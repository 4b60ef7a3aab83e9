/* Greedy continuations of SmolLM2 against llama.cpp's (continuations.txt): equal on at least 8 of
 * 10 prompts, and where they part the logits of the two tokens are within 0.1 of each other, which
 * is what the two engines' different roundings of activations can turn around. On the best device,
 * and, for the first prompt, on the references too. */
#include "tests/golden/smollm2.h"

#include <math.h>

#define MAX_TOKENS       64
#define MAX_PROMPTS      10
#define FEW_PROMPTS      2 /* with --few: what takes the host's code everywhere */
#define MAX_LINE         4096
#define REFERENCE_LINES  1
#define REFERENCE_TOKENS 16 /* with --few: a second each */
#define LOGIT_TOLERANCE  0.1f

struct golden {
    char prompt[MAX_LINE];
    token_id tokens[MAX_TOKENS];
    uint32_t n_tokens;
};

static char path[4096];
static struct golden goldens[MAX_PROMPTS];
static uint32_t n_goldens, n_prompts = MAX_PROMPTS;

/* A line of the file: a JSON string of plain ASCII with \n and \" at most, a tab, the ids. */
static void parse_line(char *line, struct golden *g)
{
    size_t n = 0;
    char *at = line;
    assert_int_equal(*at++, '"');
    for (; *at != '"'; at++) {
        assert_int_not_equal(*at, '\0');
        if (*at == '\\')
            g->prompt[n++] = *++at == 'n' ? '\n' : *at;
        else
            g->prompt[n++] = *at;
    }
    assert_int_equal(*++at, '\t');
    for (at++; *at && *at != '\n' && g->n_tokens < MAX_TOKENS;)
        g->tokens[g->n_tokens++] = (token_id)strtol(at, &at, 10);
}

static int read_goldens(void **state)
{
    (void)state;
    static char line[MAX_LINE];
    FILE *f = fopen(OINFER_SOURCE_DIR "/tests/golden/continuations.txt", "r");
    if (!f)
        return -1;
    while (n_goldens < MAX_PROMPTS && fgets(line, sizeof line, f))
        parse_line(line, &goldens[n_goldens++]);
    fclose(f);
    return n_goldens == MAX_PROMPTS ? 0 : -1;
}

/* By how much our logits after the prompt and the first n golden tokens prefer our token. */
static float gap_at(struct smollm2 *s, struct session *session, const struct token_list *prompt,
                    const struct golden *g, uint32_t n, token_id ours)
{
    struct token_list all = {0};
    for (uint32_t i = 0; i < prompt->count + n; i++)
        assert_true(token_list_push(&all, i < prompt->count ? prompt->ids[i]
                                                            : g->tokens[i - prompt->count]));
    struct step_item item = {
        .session = session, .tokens = all.ids, .n_tokens = all.count, .want = STEP_LOGITS};
    session_rewind(session, 0);
    ASSERT_OK(model_step(s->model, &item, 1, e));
    token_list_free(&all);
    return item.logits[ours] - item.logits[g->tokens[n]];
}

/* Continues a prompt until our tokens part from the golden ones or there are no more: returns the
 * number of equal tokens. */
static uint32_t continue_prompt(struct smollm2 *s, struct session *session,
                                const struct token_list *prompt, const struct golden *g,
                                token_id *parting)
{
    session_rewind(session, 0);
    struct step_item item = {.session = session,
                             .tokens = prompt->ids,
                             .n_tokens = prompt->count,
                             .want = STEP_GREEDY,
                             .n_greedy = 1};
    for (uint32_t n = 0;;) {
        ASSERT_OK(model_step(s->model, &item, 1, e));
        for (uint32_t i = 0; i < item.n_out; i++, n++) {
            if (n == g->n_tokens)
                return n;
            *parting = item.greedy[i];
            if (*parting != g->tokens[n])
                return n;
        }
        if (n == g->n_tokens)
            return n;
        const uint32_t left = g->n_tokens - n;
        item.tokens = parting;
        item.n_tokens = 1;
        item.n_greedy = left < STEP_MAX_GREEDY ? left : STEP_MAX_GREEDY;
    }
}

/* Continues the first n prompts by at most max_tokens; returns how many continuations are equal. */
static uint32_t count_equal(const char *device, uint32_t n, uint32_t max_tokens)
{
    struct smollm2 s;
    const struct load_options load = {.n_ctx = 256};
    smollm2_open(&s, path, device, &load);
    struct session *session;
    ASSERT_OK(session_open(s.model, &session, e));
    uint32_t n_equal = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct golden *g = &goldens[i];
        g->n_tokens = g->n_tokens < max_tokens ? g->n_tokens : max_tokens;
        const struct tokenize_options options = {.add_special = true, .parse_special = true};
        struct token_list prompt = {0};
        ASSERT_OK(tokenizer_encode(model_file_tokenizer(s.file), g->prompt, strlen(g->prompt),
                                   &options, &prompt, e));
        token_id parting = TOKEN_NONE;
        const uint32_t same = continue_prompt(&s, session, &prompt, g, &parting);
        n_equal += same == g->n_tokens;
        if (same < g->n_tokens) {
            float gap = gap_at(&s, session, &prompt, g, same, parting);
            print_message("prompt %u parts at token %u: %d instead of %d, logits %.4f apart\n", i,
                          same, parting, g->tokens[same], (double)gap);
            assert_true(fabsf(gap) < LOGIT_TOLERANCE);
        }
        token_list_free(&prompt);
    }
    print_message("%s: %u of %u continuations are equal\n",
                  device_info(engine_device(s.engine))->name, n_equal, n);
    smollm2_close(&s);
    return n_equal;
}

static void best_device_continues_as_llama_cpp(void **state)
{
    (void)state;
    assert_true(count_equal("", n_prompts, MAX_TOKENS) * 10 >= n_prompts * 8);
}

static void host_continues_as_llama_cpp(void **state)
{
    (void)state;
    count_equal("host", REFERENCE_LINES, n_prompts == MAX_PROMPTS ? MAX_TOKENS : REFERENCE_TOKENS);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--few") == 0)
        n_prompts = FEW_PROMPTS;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_device_continues_as_llama_cpp),
        cmocka_unit_test(host_continues_as_llama_cpp),
    };
    if (!smollm2_find(path, sizeof path))
        return SKIPPED;
    return cmocka_run_group_tests(tests, read_goldens, NULL);
}
