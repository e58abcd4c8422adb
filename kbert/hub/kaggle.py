"""KerasHub presets, downloaded from Kaggle by kagglehub. KerasHub itself is not needed.

KerasHub says in ``keras_hub.models.BertBackbone.presets`` under which Kaggle handle each of its presets lies. But to
import it takes seconds, and brings Keras and TensorFlow. Its BERT presets are therefore listed here, and a test
compares the list with an installed KerasHub.
"""

from __future__ import annotations

from pathlib import Path

from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.hub.hugging_face import first_line
from kbert.kerashub_json import TASK, TASK_WEIGHTS, TOKENIZER, VOCABULARY, WEIGHTS, WEIGHTS_INDEX, shards_of

# keras_hub.models.BertBackbone.presets of this version.
_KERAS_HUB = "0.32"
PRESETS: dict[str, str] = {
    "bert_tiny_en_uncased": "keras/bert/keras/bert_tiny_en_uncased/3",
    "bert_small_en_uncased": "keras/bert/keras/bert_small_en_uncased/3",
    "bert_medium_en_uncased": "keras/bert/keras/bert_medium_en_uncased/3",
    "bert_base_en_uncased": "keras/bert/keras/bert_base_en_uncased/3",
    "bert_base_en": "keras/bert/keras/bert_base_en/3",
    "bert_base_zh": "keras/bert/keras/bert_base_zh/3",
    "bert_base_multi": "keras/bert/keras/bert_base_multi/3",
    "bert_large_en_uncased": "keras/bert/keras/bert_large_en_uncased/3",
    "bert_large_en": "keras/bert/keras/bert_large_en/3",
    "bert_tiny_en_uncased_sst2": "keras/bert/keras/bert_tiny_en_uncased_sst2/5",
    "all_minilm_l6_v2_en": "keras/sentence-transformers/keras/all_minilm_l6_v2_en/1",
    "all_minilm_l6_v1_en": "keras/sentence-transformers/keras/all_minilm_l6_v1_en/1",
    "all_minilm_l12_v2_en": "keras/sentence-transformers/keras/all_minilm_l12_v2_en/1",
    "paraphrase_minilm_l3_v2_en": "keras/sentence-transformers/keras/paraphrase_minilm_l3_v2_en/1",
    "paraphrase_minilm_l6_v2_en": "keras/sentence-transformers/keras/paraphrase_minilm_l6_v2_en/1",
    "paraphrase_minilm_l12_v2_en": "keras/sentence-transformers/keras/paraphrase_minilm_l12_v2_en/1",
    "multi_qa_minilm_l6_cos_v1_en": "keras/sentence-transformers/keras/multi_qa_minilm_l6_cos_v1_en/1",
    "multi_qa_minilm_l6_dot_v1_en": "keras/sentence-transformers/keras/multi_qa_minilm_l6_dot_v1_en/1",
    "msmarco_minilm_l6_cos_v5_en": "keras/sentence-transformers/keras/msmarco_minilm_l6_cos_v5_en/1",
    "msmarco_minilm_l12_cos_v5_en": "keras/sentence-transformers/keras/msmarco_minilm_l12_cos_v5_en/1",
    "bge_small_en": "keras/bge/keras/bge_small_en/1",
    "bge_base_en": "keras/bge/keras/bge_base_en/1",
    "bge_large_en": "keras/bge/keras/bge_large_en/1",
    "bge_small_v1.5_en": "keras/bge/keras/bge_small_v1.5_en/1",
    "bge_base_v1.5_en": "keras/bge/keras/bge_base_v1.5_en/1",
    "bge_large_v1.5_en": "keras/bge/keras/bge_large_v1.5_en/1",
    "bge_base_zh": "keras/bge/keras/bge_base_zh/1",
    "bge_large_zh": "keras/bge/keras/bge_large_zh/1",
    "bge_small_v1.5_zh": "keras/bge/keras/bge_small_v1.5_zh/1",
    "bge_base_v1.5_zh": "keras/bge/keras/bge_base_v1.5_zh/1",
    "bge_large_v1.5_zh": "keras/bge/keras/bge_large_v1.5_zh/1",
    "bge_llm_embedder": "keras/bge/keras/bge_llm_embedder/1",
    "multilingual_e5_small": "keras/multilingual-e5/keras/multilingual_e5_small/1",
    "mxbai_embed_large_v1_en": "keras/mxbai-embed/keras/mxbai_embed_large_v1_en/1",
    "mxbai_embed_2d_large_v1_en": "keras/mxbai-embed/keras/mxbai_embed_2d_large_v1_en/1",
    "mxbai_embed_xsmall_v1_en": "keras/mxbai-embed/keras/mxbai_embed_xsmall_v1_en/1",
}


def download_preset(name: str) -> Path:
    """Return the local folder of a preset on Kaggle. What is not in kagglehub's cache is downloaded into it.

    KerasHub uses the same cache, so neither downloads again what the other one has. Without a network the cache serves
    for handles that end in a version, as those of `PRESETS` do. For a handle without a version kagglehub first asks
    Kaggle which one is the newest.

    Parameters
    ----------
    name : str
        A name of `PRESETS`, such as "bert_base_en_uncased", or a Kaggle handle, such as "OWNER/MODEL/keras/VARIATION",
        with or without "kaggle://" before it and "/VERSION" after it.

    Raises
    ------
    WeightsNotFoundError
        If the name is not known, kagglehub is not installed, or Kaggle does not give a file. A file that a preset need
        not have, such as that of a head, may be missing.
    WeightsMismatchError
        If the list of the weights files is damaged.
    """
    full_name = f"kerashub://{name}"
    handle = _handle(name)
    try:
        import kagglehub
    except ImportError:
        raise WeightsNotFoundError(
            f"{full_name!r} is downloaded by kagglehub, and kagglehub is not installed. Run: pip install kagglehub, "
            "or give the folder of a preset, which is read without it."
        ) from None

    def fetch(file: str) -> Path:
        return Path(kagglehub.model_download(handle, path=file))

    def fetch_if_there(file: str) -> bool:
        try:
            fetch(file)
            return True
        except Exception as error:
            # Most presets have no head. Without a network, the files in the cache have to do.
            if _is_not_there(error) or (file in (TASK, TASK_WEIGHTS) and _is_no_answer(error)):
                return False
            raise

    try:
        folder = fetch("config.json").parent
        if not fetch_if_there(WEIGHTS):
            for shard in shards_of(fetch(WEIGHTS_INDEX)):
                fetch(shard)
        for file in (TOKENIZER, VOCABULARY, TASK, TASK_WEIGHTS):
            fetch_if_there(file)
        return folder
    except WeightsMismatchError:
        raise
    except Exception as error:
        # The errors of kagglehub have no base class of their own.
        raise WeightsNotFoundError(
            f"The preset {full_name!r} was not found: Kaggle, where KerasHub has its weights ({handle}), gave "
            f"{type(error).__name__}: {first_line(error)} Connect to the internet and try again; what is downloaded "
            "stays in kagglehub's cache. Or give the folder that keras_hub.models.BertBackbone.save_to_preset wrote."
        ) from error


def _handle(name: str) -> str:
    """Return the Kaggle handle of a preset's name; a handle is returned as it is."""
    if "/" in name:
        handle = name.removeprefix("kaggle://")
        if handle.count("/") in (3, 4):
            return handle
        raise WeightsNotFoundError(
            f"'kerashub://{name}' is no name of a preset. Write kerashub://NAME, such as "
            "'kerashub://bert_base_en_uncased', or kerashub://OWNER/MODEL/keras/VARIATION; a folder is given by its "
            "path alone."
        )
    if name not in PRESETS:
        raise WeightsNotFoundError(
            f"'kerashub://{name}': KerasHub {_KERAS_HUB} has no BERT preset of that name. It has {', '.join(PRESETS)}. "
            "For a preset of a later version, or of anybody on Kaggle, write its handle: "
            "kerashub://OWNER/MODEL/keras/VARIATION/VERSION."
        )
    return PRESETS[name]


def _is_not_there(error: Exception) -> bool:
    """Whether Kaggle says that there is no such file."""
    return getattr(getattr(error, "response", None), "status_code", None) == 404 or isinstance(error, FileNotFoundError)


def _is_no_answer(error: Exception) -> bool:
    """Whether Kaggle could not be reached. Which HTTP client raises the error depends on the version of kagglehub."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"ConnectionError", "Timeout", "TimeoutError"})
