#!/usr/bin/env python3
"""Writes a golden file of token ids: llama.cpp's for the strings below under one vocabulary.

    python tests/golden/make_tokens.py MODEL.gguf > tests/golden/tokens_NAME.txt
    python tests/golden/make_tokens.py --pre ggml-vocab-gpt-2.gguf > tests/golden/tokens_pre.txt
Both need llama-cpp-python==0.3.36.

One string a line: `p` (specials not parsed) or `s` (parsed), the string's bytes in hexadecimal (`-` for none), the ids; no
BOS or EOS is added. Strings that hold a `<` or `[` are there both ways. Left out is what llama.cpp does not define: UTF-8
forms of surrogates, overlong ones and those beyond U+10FFFF.

With --pre, a line for each pre-tokenizer of PRE: its name and a hash (64-bit FNV-1a over the ids as little-endian u32, each
string's ids ended by 0xFFFFFFFF) of all plain lines under that vocabulary with the name put in its place.
"""
import pathlib
import struct
import sys
import tempfile

import llama_cpp

PRE = ["default", "gpt-2", "smollm", "starcoder", "command-r", "llama-bpe", "glm4", "qwen2", "stablelm2", "qwen35", "tekken", "gpt-4o",
       "falcon", "deepseek-llm", "deepseek-coder", "deepseek-v3", "bloom", "viking", "seed-coder", "bailingmoe", "minicpm5"]

LANGUAGES = """\
The quick brown fox jumps over the lazy dog.
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.
Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis.
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío, ¿verdad? ¡Sí!
À noite, vovô Kowalsky vê o ímã cair no pé do pinguim queixoso.
Pranzo d'acqua fa volti sghembi; perché no, città?
Pchnąć w tę łódź jeża lub ośm skrzyń fig.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Árvíztűrő tükörfúrógép.
Pijamalı hasta yağız şoföre çabucak güvendi. İSTANBUL ısı
Съешь ещё этих мягких французских булок, да выпей же чаю.
Чуєш їх, доцю, га? Кумедна ж ти, прощайся без ґольфів!
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.
עטלף אבק נס דרך מזגן שהתפוצץ כי חם
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر
یک متن فارسی برای آزمایش، با نیم‌فاصله
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश
আমার সোনার বাংলা, আমি তোমায় ভালোবাসি।
தமிழ் மொழி மிகவும் பழமையானது.
తెలుగు భాష మధురమైనది
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า
ភាសាខ្មែរ គឺជាភាសាផ្លូវការ
မြန်မာဘာသာစကား
いろはにほへと ちりぬるを わかよたれそ つねならむ。
東京特許許可局の局長が、カタカナとひらがなを混ぜる。
我能吞下玻璃而不伤身体。你好，世界！
視野無限廣,窗外有藍天
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.
Tôi có thể ăn thủy tinh mà không hại gì. Cửa Việt
Ég get etið gler án þess að meiða mig. Þórður ætlar
ຂອ້ຍກິນແກ້ວໄດ້ໂດຍທີ່ມັນບໍ່ໄດ້ເຮັດໃຫ້ຂອ້ຍເຈັບ
მინას ვჭამ და არა მტკივა.
Կրնամ ապակի ուտել և ինծի անհանգիստ չըներ։
ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ
Nescio quid dicam; ĉiuj homoj ŝatas ĵaŭdon.
Mi fhéin: tha mi ag ithe glainne
አማርኛ መስተጋብር
𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒽𝓊𝓃𝓉 𝟙𝟚𝟛 Ａｂｃ１２３ ﬁﬂ ﷺ
Z̵̛͎a̷̕l̴g̶o̸ e\u0301 vs \u00e9, n\u0303o, A\u030a
I've been 'told he's there, 'RE you sure? We'Ve a'lL; ſ’s
mixed日本語and English字符100元""".split("\n")

CODE = """\
def f(x, *args, **kw):\n    return [i**2 for i in range(x) if i % 2 == 0]\n
int main(void)\n{\n\tprintf("%d\\\\n", 0x7fff'ffff);\n\treturn 0;\n}\n
#include <stdio.h>\r\n#define MAX(a, b) ((a) > (b) ? (a) : (b))\r\n
fn main() -> Result<(), Box<dyn Error>> { let v: Vec<u8> = vec![0; 16]; Ok(()) }
const f = async (x) => { await fetch(`https://example.org/${x}?q=1&r=2#top`); };
SELECT a.id, COUNT(*) FROM t AS a WHERE a.x >= 10 AND b IS NOT NULL GROUP BY 1;
<html><head><title>x</title></head><body class="a b">&nbsp;&lt;</body></html>
{"key": [1, 2.5e-3, null, true], "nested": {"a\\"b": "\\u00e9"}}
for i in $(seq 1 10); do echo "$i" | sed -e 's/[0-9]\\+/<&>/g' >> /tmp/x_$i.log; done
x = y+++z--; a<<=2; b>>>=1; c!==d; e=>f; g??h; i?.j; k::l; m->n; !o; ~p; q^r; s&&t||u
camelCaseName snake_case_name SCREAMING_CASE kebab-case-name dot.case.name path/to/file.txt C:\\\\dir\\\\x
    indented by four\n        by eight\n\t\tby tabs\n  \t mixed\n
Makefile:\n\tcc -O2 -o $@ $^\n\n.PHONY: all\n
E = mc^2, \\frac{a}{b} \\leq \\sum_{i=0}^{n} x_i, 3.14159, -1.5e+10, 1,000,000, 0b1010, 50%""".split("\n")

EMOJI = ["🚀", "😶‍🌫️", "👨‍👩‍👧‍👦", "🇩🇪🇫🇷🇯🇵", "👍🏽👍🏿", "✅❌⚠️", "❤️‍🔥", "1️⃣2️⃣#️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "text 🙂 text", "🙂🙂🙂🙂🙂🙂🙂🙂",
         "a🦙b🦙c", "☃☂☁", "♠♥♦♣", "→←↑↓⇒", "½¼¾²³", "€£¥₹₿", "©®™", "…—–“”‘’«»", "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋"]

SPECIALS = ["<s>", "</s>", "<unk>", "<0x0A>", "<s>x</s>y", "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n",
            "<|im_start|>", " <|im_end|> ", "<|im_end|><|im_end|>", "<|endoftext|>", "a<|endoftext|>b", "<|im_start|", "<|im_start|>>",
            "<<|im_start|>", "<|IM_START|>", "<s><s>", "<s> <s>", "</s> text", "[INST] hi [/INST]", "<s>[INST] <<SYS>>\nx\n<</SYS>>\n",
            "<file_sep>a<filename>b<reponame>", "<jupyter_code>1\n<jupyter_output>2", "<gh_stars>100", "<repo_name>x/y<file_sep>",
            "<issue_start><issue_comment>y", "user<|im_end|>name", "<unk><unk>", "x<unk>y", "<|system|>", "<|eot_id|>", "[PAD]", "[UNK] x"]

INVALID = [b"\xff", b"a\xffb\xc3", b"\xe2ab", b"\xe2\x96", b"\x80\x80", b"abc\xf0\x9f\x98", b"\xf0\x9f\x98\x80\xf0", b"\xc3(", b"x\xc3",
           b"\xe6\x97\xa5\xe6\x9c", b"ok \xfe\xfe\xff\xff ok", b"\xf0\x28\x8c\xbc", b"caf\xe9", b"\xa0\xa1", b"\xe2\x82", b"\x00",
           b"a\x00b", b"\x00\x00\x00", b"\x01\x02\x03\x1b[31mred\x1b[0m", b"\x7f\x7f", b"line\x0b\x0cfeed\x08", b"\xef\xbb\xbfBOM",
           b"\xc2\x85\xc2\xa0\xe1\x9a\x80\xe2\x80\x83\xe2\x80\xa8\xe3\x80\x80x", b"\xef\xbf\xbd", b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf",
           b"\xe2\x80\x8b\xe2\x80\x8d\xe2\x80\x8e\xe2\x81\xa0", b"\xc2\xadsoft\xc2\xadhyphen"]

WORDS = ["Hello", " world", "  ", "\n", "\t", "42", "3.14", "é", "日本", "🙂", "'s", "'LL", "foo_bar", "(", ");", "\r\n", " a", "A", "-", "▁", "…",
         "<", ">", "ß", "1234567", " the", "The", "\u00a0", "ﬁ", "ق", "न", "!!", "=="]


def runs():
    """Runs of one kind of character in many lengths, alone and between words."""
    for unit in (" ", "\n", "\t", "\r\n", " \n", "\n ", "\u3000", "\u00a0"):
        for n in (1, 2, 3, 4, 5, 8, 17):
            yield unit * n
            yield "a" + unit * n + "b"
    for n in list(range(1, 13)) + [20, 33]:
        yield ("1234567890" * 4)[:n]
    for text in ("3 33 333 3333 33333 333333", "1,234.56", "2024-01-31T23:59:59Z", "v1.2.3-rc4", "0x1F600", "٣٤٥ ۱۲۳ १२३ ๑๒", "Ⅷ ⑨ ½",
                 "10^100", "+49 (0)30 123456", "007", "1e9"):
        yield text
    for unit in ("a", "A", "!", "-", "=", ".", "'", "`", "é", "字", "🙂", "ab", "ha", "_", "/", "\u0301"):
        for n in (2, 7, 40):
            yield unit * n


def mixtures(count):
    """Words put together by a fixed linear congruential generator."""
    state = 1
    for _ in range(count):
        text = ""
        for _ in range(3 + state % 9):
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            text += WORDS[(state >> 33) % len(WORDS)]
        yield text


def strings():
    """All strings, as bytes, without repetitions."""
    texts = ["", " ", "Hello", " Hello", "Hello ", "  Hello  world  ", "Hello\nworld\n\n"]
    texts += [t.encode().decode("unicode_escape").encode("latin-1").decode() if "\\u" in t else t for t in LANGUAGES]
    texts += [t.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r") for t in CODE]
    texts += EMOJI + SPECIALS + list(runs()) + list(mixtures(80))
    texts += [" " + t for t in LANGUAGES[:12]] + ["\n".join(LANGUAGES), "\n\n".join(CODE)]
    return list(dict.fromkeys([t.encode() for t in texts] + INVALID))


def open_vocabulary(path):
    """The vocabulary of a GGUF file."""
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    return llama_cpp.llama_model_get_vocab(model)


def tokenize(vocab, text, parse):
    """llama.cpp's ids."""
    ids = (llama_cpp.llama_token * (3 * len(text) + 8))()
    n = llama_cpp.llama_tokenize(vocab, text, len(text), ids, len(ids), False, parse)
    assert n >= 0, text
    return ids[:n]


def with_pre(data, name):
    """The bytes of a vocabulary-only GGUF with another tokenizer.ggml.pre."""
    key = b"tokenizer.ggml.pre" + struct.pack("<I", 8)
    at = data.index(key) + len(key)
    length, = struct.unpack_from("<Q", data, at)
    return data[:at] + struct.pack("<Q", len(name)) + name + data[at + 8 + length:]


def write_pre(path):
    """A line for each name of PRE."""
    data = pathlib.Path(path).read_bytes()
    for name in PRE:
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(with_pre(data, name.encode()))
            file.flush()
            vocab = open_vocabulary(file.name)
            value = 0xCBF29CE484222325
            for text in strings():
                for byte in struct.pack("<%dI" % (len(ids := tokenize(vocab, text, False)) + 1), *ids, 0xFFFFFFFF):
                    value = (value ^ byte) * 0x100000001B3 % (1 << 64)
        print(name, "%016x" % value)


def main():
    if sys.argv[1] == "--pre":
        write_pre(sys.argv[2])
        return
    vocab = open_vocabulary(sys.argv[1])
    for text in strings():
        for parse in (False, True) if b"<" in text or b"[" in text else (False,):
            print("s" if parse else "p", text.hex() or "-", *tokenize(vocab, text, parse))


main()
