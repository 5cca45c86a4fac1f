"""The jobs of benches/flow.rs by the tools that people use; what they take is measured from outside.

    flow.py join TOOL SALES/ SHOPS/ OUT        filter, join, group and write
    flow.py shuffle TOOL SALES/ OUT            another order of all rows, written as Parquet
    flow.py tokens datasets TEXTS.csv TOKENIZER.json OUT
    flow.py tokenizer TEXTS.csv TOKENIZER.json trains a small WordPiece tokenizer, which is not measured
"""
import sys

JOIN = """select s.city, count(*) as sales, sum(b.price * b.units) as total
          from {sales} b join {shops} s on b.shop = s.shop where b.price > 100 group by s.city"""


def join_datafusion(sales, shops, out):
    import datafusion
    context = datafusion.SessionContext()
    context.register_parquet("sales", sales)
    context.register_parquet("shops", shops)
    context.sql(JOIN.format(sales="sales", shops="shops")).write_parquet(f"{out}/joined")


def join_duckdb(sales, shops, out):
    import duckdb
    query = JOIN.format(sales=f"read_parquet('{sales}*.parquet')", shops=f"read_parquet('{shops}*.parquet')")
    duckdb.sql(f"copy ({query}) to '{out}/joined.parquet' (format parquet)")


def join_polars(sales, shops, out):
    import polars as pl
    kept = pl.scan_parquet(f"{sales}*.parquet").filter(pl.col("price") > 100)
    joined = kept.join(pl.scan_parquet(f"{shops}*.parquet"), on="shop")
    total = (pl.col("price") * pl.col("units")).sum().alias("total")
    joined.group_by("city").agg(pl.len().alias("sales"), total).sink_parquet(f"{out}/joined.parquet")


def join_pandas(sales, shops, out):
    import pandas as pd
    kept = pd.read_parquet(sales, columns=["shop", "price", "units"])
    kept = kept[kept.price > 100].merge(pd.read_parquet(shops), on="shop")
    kept["total"] = kept.price * kept.units
    grouped = kept.groupby("city", as_index=False).agg(sales=("shop", "size"), total=("total", "sum"))
    grouped.to_parquet(f"{out}/joined.parquet")


def shuffle_duckdb(sales, out):
    import duckdb
    query = f"select * from read_parquet('{sales}*.parquet') order by hash(id + 7)"
    duckdb.sql(f"copy ({query}) to '{out}/shuffled.parquet' (format parquet)")


def shuffle_polars(sales, out):
    import polars as pl
    rows = pl.scan_parquet(f"{sales}*.parquet").sort(pl.col("id").hash(7))
    rows.sink_parquet(f"{out}/shuffled.parquet")


def shuffle_pandas(sales, out):
    import pandas as pd
    pd.read_parquet(sales).sample(frac=1, random_state=7).to_parquet(f"{out}/shuffled.parquet")


def tokens_datasets(texts, tokenizer, out):
    import os
    import datasets
    from tokenizers import Tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    encoder = Tokenizer.from_file(tokenizer)
    encoder.enable_truncation(128)
    rows = datasets.load_dataset("csv", data_files=texts, split="train", cache_dir=f"{out}/cache")

    def encode(batch):
        return {"text": [found.ids for found in encoder.encode_batch(batch["text"])]}

    rows.map(encode, batched=True).to_parquet(f"{out}/tokens.parquet")


def train_tokenizer(texts, place):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    with open(texts, encoding="utf-8") as lines:
        some = [line for line, _ in zip(lines, range(5000))]
    tokenizer.train_from_iterator(some, trainers.WordPieceTrainer(vocab_size=3000, special_tokens=special,
                                                                  show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", tokenizer.token_to_id("[SEP]")),
                                                         ("[CLS]", tokenizer.token_to_id("[CLS]")))
    tokenizer.save(place)


if __name__ == "__main__":
    job, *words = sys.argv[1:]
    if job == "tokenizer":
        train_tokenizer(*words)
    else:
        tool, *words = words
        globals()[f"{job}_{tool}"](*words)
