"""
Metrics of topics
=================

The picture shows coherence, diversity and agreement with labels against the number of topics. No number is best by all
three: with few topics, several labels share a topic; with many topics, the same words appear in several.
"""

# sphinx_gallery_capture_repr = ()
import matplotlib.pyplot as plt
import pandas as pd

from collapsium.pipeline import fit, ingest, measure, sample_texts

texts = pd.DataFrame(sample_texts())
texts[texts["kind"] == "annual"].to_json("texts.jsonl", orient="records", lines=True)
ingest("texts.jsonl", "corpus", labels=["president"], min_documents=5, max_document_share=0.2)
names = {"c_v": "coherence (c_v)", "strict-diversity": "strict diversity", "purity": "purity", "nmi": "NMI"}
numbers = [5, 10, 20, 40, 80]
measured = []
for topics in numbers:
    fit("corpus", f"run-{topics}", family="lda", topics=topics, iterations=40)
    measured.append(measure(f"run-{topics}", metrics=list(names), coherence="texts.jsonl", label_field="president"))

figure, axes = plt.subplots(figsize=(7.0, 4.0), layout="constrained")
for name, text in names.items():
    axes.plot(numbers, [metrics[name].value for metrics in measured], marker="o", label=text)
axes.set(xscale="log", xticks=numbers, xticklabels=numbers, xlabel="topics", ylabel="value", ylim=(0, 1))
axes.minorticks_off()
axes.legend(frameon=False)
figure.savefig("topic_metrics.svg")
plt.close(figure)

# %%
# Each measurement has its definition and its source.

for metric in measured[-1].values():
    print(f"{metric.name}: {metric.value:.3f}\n  {metric.definition}\n  {metric.source}")
