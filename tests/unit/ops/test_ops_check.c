/* Bad calls are refused, with an error that names op, thing, value and limit; layouts and work are
 * counted right. Runs on `host`, so needs no OpenCL. */
#include "ops_test.h"

/* A sound linear call of 4 x 32 weights; each test spoils one thing. */
static struct op_call sound_linear(struct device *d)
{
    return (struct op_call){
        .op = OP_LINEAR,
        .tensors = {ops_tensor(d, NULL, 4 * 18, DT_Q4_0), ops_tensor(d, NULL, 2 * 32 * 4, DT_F32),
                    ops_tensor(d, NULL, 16, DT_F32), ops_tensor(d, NULL, 2 * 4 * 4, DT_F32)},
        .params.linear = {.m = 4, .k = 32, .n_tokens = 2, .y_stride = 4, .has_bias = 1}};
}

/* A call of an op that does not exist is put to linear's reference: there is none of its own. */
static void expect_refused(struct device *d, const struct op_call *call, enum status want,
                           const char *text)
{
    struct op_step *s = NULL;
    struct err e = {0};
    const struct variant *v = variant_reference(call->op < OP_COUNT ? call->op : OP_LINEAR);
    enum status st = op_bind(d, v, call, &s, &e);
    op_step_close(s);
    if (st != want || !strstr(e.text, text))
        fail_msg("got %s \"%s\", expected %s \"%s\"", status_name(st), e.text, status_name(want),
                 text);
}

static void linear_calls(void **state)
{
    (void)state;
    struct device *d = ops_host();
    const struct op_call sound = sound_linear(d);
    struct op_call call = sound;
    assert_int_equal(op_call_once(d, variant_reference(OP_LINEAR), &call, NULL), ST_OK);
#define SPOILED(change, text)                       \
    do {                                            \
        call = sound;                               \
        change;                                     \
        expect_refused(d, &call, ST_INVALID, text); \
    } while (0)
    struct linear_params *p = &call.params.linear;
    struct tensor *t = call.tensors;
    SPOILED(p->m = 0, "linear: m is 0, expected 1 to");
    SPOILED(p->n_tokens = 0, "linear: n_tokens is 0");
    SPOILED(p->k = 0, "linear: k is 0");
    SPOILED(p->k = 0xffffffffu, "linear: k is 4294967295");
    SPOILED(p->k = 31, "31 columns do not fit dtype q4_0");
    SPOILED(p->y_stride = 3, "linear: y_stride is 3, expected at least 4");
    SPOILED(p->epilogue = 7, "linear: epilogue is 7, expected at most 2");
    SPOILED(p->m = p->y_stride = 5, "linear: w is 72, expected at least 90");
    SPOILED(p->n_tokens = 3, "linear: x is 256, expected at least 384");
    SPOILED(t[2].bytes = 15, "linear: bias is 15, expected at least 16");
    SPOILED(t[2].buffer = NULL, "linear: tensor bias has no buffer, expected 16 bytes");
    SPOILED(t[3].offset = 2, "linear: y is 2, expected a multiple of 4");
    SPOILED(t[3].offset = 4, "linear: tensor y: 32 bytes at 4 pass its buffer's 32");
    SPOILED(t[3].offset = UINT64_MAX - 3, "pass its buffer's 32");
    SPOILED(t[3].dtype = DT_F16, "tensor y is f16, expected f32");
    SPOILED(t[0].dtype = DT_Q2_K, "do not fit dtype q2_k");
    SPOILED(t[0].layout = LAYOUT_R16, "layout 1");
    SPOILED(call.op = OP_COUNT, "op ");
#undef SPOILED
    call = sound;
    p->epilogue = LINEAR_SWIGLU;
    expect_refused(d, &call, ST_UNSUPPORTED, "must be interleaved");
    call = sound;
    ops_close_tensors(&call);
    device_close(d);
}

/* The params of the other ops, checked before any tensor is looked at. */
static void params_of_all_ops(void **state)
{
    (void)state;
    struct device *d = ops_host();
    static const struct {
        enum op_id op;
        union op_params params;
        const char *text;
    } bad[] = {
        {OP_EMBED, {.embed = {.n_tokens = 0, .k = 1, .n_vocab = 1}}, "embed: n_tokens is 0"},
        {OP_EMBED, {.embed = {.n_tokens = 1, .k = 1, .n_vocab = 0}}, "embed: n_vocab is 0"},
        {OP_NORM, {.norm = {.n_rows = 0, .len = 1, .x_stride = 1}}, "norm: n_rows is 0"},
        {OP_NORM, {.norm = {.n_rows = 1, .len = 4, .x_stride = 3}}, "norm: x_stride is 3"},
        {OP_NORM, {.norm = {.n_rows = 1, .len = 4, .x_stride = 4, .kind = 2}}, "norm: kind is 2"},
        {OP_QUANTIZE, {.quantize = {.n_rows = 1, .len = 0}}, "quantize: len is 0"},
        {OP_ROPE_KV,
         {.rope_kv = {.n_tokens = 1,
                      .stride = 8,
                      .k_col = 1,
                      .v_col = 4,
                      .n_head = 1,
                      .n_head_kv = 1,
                      .head_dim = 2,
                      .n_ctx = 1}},
         "rope_kv: k_col is 1, expected at least 2"},
        {OP_ROPE_KV,
         {.rope_kv = {.n_tokens = 1,
                      .stride = 5,
                      .k_col = 2,
                      .v_col = 4,
                      .n_head = 1,
                      .n_head_kv = 1,
                      .head_dim = 2,
                      .n_ctx = 1}},
         "rope_kv: stride is 5, expected at least 6"},
        {OP_ROPE_KV,
         {.rope_kv = {.n_tokens = 1,
                      .stride = 6,
                      .k_col = 2,
                      .v_col = 4,
                      .n_head = 1,
                      .n_head_kv = 1,
                      .head_dim = 2,
                      .n_rot = 4,
                      .n_ctx = 1}},
         "rope_kv: n_rot is 4, expected at most 2"},
        {OP_ATTENTION,
         {.attention = {.n_tokens = 1,
                        .q_stride = 6,
                        .n_head = 3,
                        .n_head_kv = 2,
                        .head_dim = 2,
                        .n_ctx = 4,
                        .kv_max = 4,
                        .n_splits = 1}},
         "attention: n_head is 3, expected a multiple of 2"},
        {OP_ATTENTION,
         {.attention = {.n_tokens = 1,
                        .q_stride = 4,
                        .n_head = 2,
                        .n_head_kv = 2,
                        .head_dim = 2,
                        .n_ctx = 4,
                        .kv_max = 5,
                        .n_splits = 1}},
         "attention: kv_max is 5, expected at most 4"},
        {OP_ATTENTION,
         {.attention = {.n_tokens = 1,
                        .q_stride = 4,
                        .n_head = 2,
                        .n_head_kv = 2,
                        .head_dim = 2,
                        .n_ctx = 4,
                        .kv_max = 4,
                        .n_splits = 65}},
         "attention: n_splits is 65, expected at most 64"},
        {OP_SWIGLU, {.swiglu = {.n_tokens = 1, .n = 2, .x_stride = 3}}, "swiglu: x_stride is 3"},
        {OP_ADD, {.add = {0}}, "add: n is 0"},
        {OP_ARGMAX, {.argmax = {.n_rows = 1, .len = 0, .x_stride = 1}}, "argmax: len is 0"},
        {OP_REPACK,
         {.repack = {.n_rows = 4, .k = 32, .m_total = 4, .row0 = 1, .group = 4, .group_stride = 4}},
         "repack: last row is 4, expected at most 3"},
        {OP_REPACK,
         {.repack = {.n_rows = 4, .k = 32, .m_total = 4, .group = 4, .group_stride = 2}},
         "repack: group_stride is 2, expected at least 4"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct op_call call = {.op = bad[i].op, .params = bad[i].params};
        expect_refused(d, &call, ST_INVALID, bad[i].text);
    }
    device_close(d);
}

/* A bound step refuses bad changes and keeps what it had. */
static void steps_refuse_changes(void **state)
{
    (void)state;
    struct device *d = ops_host();
    struct op_call call = sound_linear(d);
    struct op_step *s;
    struct err e = {0};
    assert_int_equal(op_bind(d, variant_reference(OP_LINEAR), &call, &s, &e), ST_OK);
    union op_params params = call.params;
    params.linear.n_tokens = 3;
    assert_int_equal(op_step_set_params(s, &params, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "x is 256, expected at least 384"));
    assert_int_equal(op_step_set_tensor(s, 4, &call.tensors[0], &e), ST_INVALID);
    struct tensor y = call.tensors[3];
    y.bytes = 8;
    assert_int_equal(op_step_set_tensor(s, 3, &y, &e), ST_INVALID);
    params.linear.n_tokens = 1;
    assert_int_equal(op_step_set_params(s, &params, &e), ST_OK);
    assert_int_equal(op_run(s, &e), ST_OK);
    op_step_close(s);
    op_step_close(NULL);
    ops_close_tensors(&call);
    device_close(d);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct device *d = ops_host();
    struct op_call call = sound_linear(d);
    for (uint64_t n = 1;; n++) {
        struct err e = {0};
        (void)mem_fail_at(n, 0);
        enum status st = op_call_once(d, variant_reference(OP_LINEAR), &call, &e);
        const uint64_t made = mem_fail_at(0, 0);
        if (made < n) {
            assert_int_equal(st, ST_OK);
            assert_true(n > 2);
            break;
        }
        assert_int_equal(st, ST_NO_MEMORY);
    }
    ops_close_tensors(&call);
    device_close(d);
}

static void bytes_of_layouts_and_activations(void **state)
{
    (void)state;
    assert_int_equal(layout_bytes(DT_Q4_0, LAYOUT_FILE, 3, 64), 3 * 2 * 18);
    assert_int_equal(layout_bytes(DT_Q4_0, LAYOUT_FILE, 3, 65), 0);
    assert_int_equal(layout_bytes(DT_Q4_0, LAYOUT_R4, 5, 64), 2 * 2 * 72);
    assert_int_equal(layout_bytes(DT_Q4_0, LAYOUT_R4, 4, 96), (3 * 72 + 15) / 16 * 16);
    assert_int_equal(layout_bytes(DT_Q4_0, LAYOUT_R16, 17, 64), 2 * 576);
    assert_int_equal(layout_bytes(DT_Q2_K, LAYOUT_R16, 16, 256), 0);
    /* over 4 GiB without wrapping */
    assert_true(layout_bytes(DT_F32, LAYOUT_FILE, 262144, 8192) == 8589934592u);
    assert_int_equal(layout_rows(LAYOUT_FILE), 1);
    assert_int_equal(layout_rows(LAYOUT_R4), 4);
    assert_int_equal(layout_rows(LAYOUT_R16), 16);
    assert_int_equal(act_bytes(ACT_F32, 3, 5), 60);
    assert_int_equal(act_bytes(ACT_F16, 3, 5), 30);
    assert_int_equal(act_row_bytes(ACT_Q8, 64), 128);
    assert_int_equal(act_bytes(ACT_Q8, 2, 96), 2 * 128);
    assert_int_equal(act_bytes(ACT_Q8, 1, 33), 0);
    assert_int_equal(act_bytes(99, 1, 32), 0);
}

static void work_of_a_call(void **state)
{
    (void)state;
    struct op_call call = {.op = OP_LINEAR,
                           .params.linear = {.m = 10, .k = 64, .n_tokens = 3, .y_stride = 10}};
    call.tensors[0].dtype = DT_Q4_0;
    assert_int_equal(op_flops(&call), 2 * 10 * 64 * 3);
    assert_int_equal(op_bytes(&call), 10 * 36 + 3 * 64 * 4 + 3 * 10 * 4);
    struct op_call embed = {.op = OP_EMBED, .params.embed = {.n_tokens = 2, .k = 4, .n_vocab = 99}};
    assert_int_equal(op_bytes(&embed), 2 * 16 + 2 * 4 + 2 * 16);
    struct attention_params split = {.n_tokens = 2, .n_head = 3, .n_splits = 4, .head_dim = 8};
    assert_int_equal(attention_scratch_bytes(NULL, &split), 4 * 2 * 3 * 4 * 10);
    split.n_splits = 1;
    assert_int_equal(attention_scratch_bytes(NULL, &split), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_calls),
        cmocka_unit_test(params_of_all_ops),
        cmocka_unit_test(steps_refuse_changes),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(bytes_of_layouts_and_activations),
        cmocka_unit_test(work_of_a_call),
    };
    return cmocka_run_group_tests(tests, ops_open_list, ops_close_list);
}
