"""Fine-tunes a model of Hugging Face on texts with transformers' Trainer, by the settings of model_zoo/text/bert.yaml.

    reviews.py MODEL TRAIN.csv VALID.csv SEED EPOCHS    prints the processor's seconds and the validation accuracy

The files have the columns `text` and `label`, as those of `salamander data fetch reviews`.
"""
import csv
import sys
import tempfile
import time

import torch
from transformers import (AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer,
                          TrainingArguments)


def rows_of(path):
    return list(csv.DictReader(open(path, encoding="utf-8", newline="")))


def read(path, tokenizer, classes):
    rows = rows_of(path)
    ids = [tokenizer(row["text"], truncation=True, max_length=128, padding=False) for row in rows]
    return [dict(input_ids=text["input_ids"], attention_mask=text["attention_mask"], labels=classes.index(row["label"]))
            for text, row in zip(ids, rows)]


def main(model, train, valid, seed, epochs):
    tokenizer = AutoTokenizer.from_pretrained(model)
    torch.manual_seed(int(seed))
    classes = sorted({row["label"] for row in rows_of(train)})
    classifier = AutoModelForSequenceClassification.from_pretrained(model, num_labels=len(classes))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, seed=int(seed), num_train_epochs=float(epochs), per_device_train_batch_size=32,
            per_device_eval_batch_size=64, learning_rate=5e-5, warmup_steps=50, weight_decay=0.01,
            lr_scheduler_type="linear", max_grad_norm=0.0, save_strategy="no", report_to=[], disable_tqdm=True,
            use_cpu=True)
        trainer = Trainer(
            classifier, arguments, train_dataset=read(train, tokenizer, classes),
            eval_dataset=read(valid, tokenizer, classes),
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=lambda found: dict(accuracy=(found.predictions.argmax(-1) == found.label_ids).mean()))
        begun = time.process_time()
        trainer.train()
        spent = time.process_time() - begun
        print(f"{spent:.0f} seconds of the processor, accuracy {trainer.evaluate()['eval_accuracy']:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
