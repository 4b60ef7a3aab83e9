"""The operators of /v1/ops in numpy, on inputs generated as the API says: what the daemon's answers are compared with."""
import gguf
import numpy as np


def fmix32(h):
    """The finaliser of MurmurHash3 over an array of uint32."""
    h = h ^ (h >> np.uint32(16))
    h = h * np.uint32(0x85EBCA6B)
    h = h ^ (h >> np.uint32(13))
    h = h * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def hashes(seed, number, n):
    start = (seed * 0x9E3779B9 + number * 0x85EBCA6B) & 0xFFFFFFFF
    return fmix32((np.arange(n, dtype=np.uint64) + np.uint64(start)).astype(np.uint32))


def generate(seed, number, *shape):
    """Input `number` of an operator: f32 in [-1, 1)."""
    u = hashes(seed, number, int(np.prod(shape)))
    return ((u >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)).reshape(shape)


def nmse(got, want):
    got, want = np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64).ravel()
    assert got.shape == want.shape
    return float(((got - want) ** 2).sum() / max((want**2).sum(), 1e-30))


def rounded(x, dtype):
    """x as the daemon stores it in dtype, in f64."""
    if dtype == "bf16":
        bits = x.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)
    return x.astype(np.float16 if dtype == "f16" else np.float32).astype(np.float64)


def matmul(a, b, c=None, alpha=1, beta=0, trans_a=False, trans_b=False):
    a = np.swapaxes(a, -1, -2) if trans_a else a
    b = np.swapaxes(b, -1, -2) if trans_b else b
    product = alpha * (a.astype(np.float64) @ b.astype(np.float64))
    return product if c is None else product + beta * c.astype(np.float64)


def conv2d(x, w, bias=None, stride=(1, 1), pad=(0, 0), dilation=(1, 1), groups=1, activation="none"):
    """x [n, c, h, w], w [o, c / groups, kh, kw]."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2))
    o, depth, kh, kw = w.shape
    ho = (x.shape[2] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    wo = (x.shape[3] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    y = np.zeros((x.shape[0], o, ho, wo))
    for channel in range(o):
        first = channel // (o // groups) * depth
        for r in range(kh):
            for s in range(kw):
                rows = slice(r * dilation[0], r * dilation[0] + (ho - 1) * stride[0] + 1, stride[0])
                columns = slice(s * dilation[1], s * dilation[1] + (wo - 1) * stride[1] + 1, stride[1])
                y[:, channel] += np.einsum("nchw,c->nhw", x[:, first:first + depth, rows, columns],
                                           w[channel, :, r, s].astype(np.float64))
    if bias is not None:
        y += bias.astype(np.float64)[None, :, None, None]
    return {"none": y, "relu": np.maximum(y, 0), "silu": y / (1 + np.exp(-y))}[activation]


def softmax(x, mask=None, scale=1, log=False):
    x = x.astype(np.float64) * scale + (0 if mask is None else mask.astype(np.float64))
    e = np.exp(x - x.max(axis=1, keepdims=True))
    y = e / e.sum(axis=1, keepdims=True)
    return np.log(y) if log else y


def top_k(x, k):
    return np.argsort(-x, axis=1, kind="stable")[:, :k]


def quantised(w, dtype):
    """w through the reference quantiser of a weight format and back; None: numpy has none for it."""
    kind = {"f32": None, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16,
            "q4_0": gguf.GGMLQuantizationType.Q4_0, "q4_1": gguf.GGMLQuantizationType.Q4_1,
            "q5_0": gguf.GGMLQuantizationType.Q5_0, "q5_1": gguf.GGMLQuantizationType.Q5_1,
            "q8_0": gguf.GGMLQuantizationType.Q8_0}[dtype]
    return w if kind is None else gguf.quants.dequantize(gguf.quants.quantize(w, kind), kind)


def attention(q, k, v, causal=True, window=0, softcap=0):
    """q [n_q, n_head, head_dim], k and v [n_kv, n_head_kv, head_dim]."""
    q, k, v = (t.astype(np.float64) for t in (q, k, v))
    shared = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, shared, axis=1), np.repeat(v, shared, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[2])
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    own = np.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0]
    key = np.arange(k.shape[0])[None, :]
    hidden = np.zeros(scores.shape[1:], bool)
    if causal:
        hidden |= key > own
    if window:
        hidden |= own - key >= window
    scores[:, hidden] = -np.inf
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(axis=2, keepdims=True), v)


def sparse_matrix(seed, m, k, kind, density):
    """The generated sparse matrix, dense."""
    a = generate(seed, 0, m, k).astype(np.float64)
    if kind == "csr":
        return np.where(hashes(seed, 7, m * k).reshape(m, k) < density * 2.0**32, a, 0)
    four = a.reshape(m, k // 4, 4)
    order = np.argsort(-np.abs(four), axis=2, kind="stable")
    kept = np.zeros(four.shape, bool)
    np.put_along_axis(kept, order[:, :, :2], True, axis=2)
    return np.where(kept, four, 0).reshape(m, k)


def norm(x, weight, bias=None, kind="rms", eps=1e-5):
    x = x.astype(np.float64)
    if kind == "layer":
        x = x - x.mean(axis=1, keepdims=True)
    y = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps) * weight
    return y if bias is None else y + bias


def rope(x, positions, base=10000.0, mode="norm"):
    """x [n_tokens, n_head, head_dim]."""
    x, dim = x.astype(np.float64), x.shape[2]
    angle = np.asarray(positions)[:, None] * base ** (-2.0 * np.arange(dim // 2) / dim)
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    first, second = (x[..., 0::2], x[..., 1::2]) if mode == "norm" else (x[..., :dim // 2], x[..., dim // 2:])
    turned = first * cos - second * sin, first * sin + second * cos
    return np.stack(turned, axis=3).reshape(x.shape) if mode == "norm" else np.concatenate(turned, axis=2)


def elementwise(fn, x, y=None, factor=1):
    x = x.astype(np.float64)
    return {"add": lambda: x + y, "mul": lambda: x * y, "silu": lambda: x / (1 + np.exp(-x)),
            "gelu": lambda: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
            "relu": lambda: np.maximum(x, 0), "swiglu": lambda: x / (1 + np.exp(-x)) * y, "scale": lambda: factor * x}[fn]()
