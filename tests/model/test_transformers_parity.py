"""The encoder gives the numbers that transformers' BertModel gives for the same released weights."""

import keras
import numpy as np
import pytest

from kbert import BertEncoder, WordPieceTokenizer

pytestmark = [pytest.mark.backend, pytest.mark.parity]

SENTENCES = """\
No.
It's slow, isn't it?
A triumph.
The train from Zürich was forty minutes late again.
I wouldn't recommend this to my worst enemy, and I mean that.
Warm, funny and a little sad: everything that a family film should be.
Prices rose by 3.7% in the year to March, the statistics office said on Tuesday.
Why does my phone restart every time I plug in the charger?
He said "never", she said "maybe", and the lawyers said nothing at all.
The museum, which reopened last week after a long restoration, drew more than 20,000 visitors.
¿Dónde está la biblioteca?
Das Übergangsgerät weiß-grün ist ausverkauft.
We measured the temperature at 12 stations along the river between 1987 and 2014.
lol that was soooo bad i left after 10 min
The committee will not, as had been reported, vote on the proposal before the summer recess.
Mix the flour, the salt and the yeast; add the water; knead for ten minutes; let it rise until doubled.
She plays the cello in an orchestra that nobody has heard of.
東京 is the capital of Japan.
One of the most tedious, overlong and self-important pictures of the decade, saved only by its score.
My order #48213-B arrived with a broken lid, two missing screws and somebody else's invoice.
Photosynthesis converts light energy into chemical energy.
Call me back.
There are, broadly speaking, three schools of thought on why the empire fell, and each has its defenders.
The defendant denied the charges; the trial continues.
I'd give it 4/5 - great camera, terrible battery, fair price...
Antidisestablishmentarianism is longer than pneumonia but shorter than pneumonoultramicroscopicsilicovolcanoconiosis.
Rain is expected in the north and west, spreading slowly to all parts by the evening, with gales on exposed coasts.
Nobody knows.
The quick brown fox jumps over the lazy dog, and the lazy dog, for once, minds.
In the end the village kept its school, its post office and one of its two pubs, which was more than most had hoped.
She handed in her notice on Monday, flew to Lisbon on Wednesday and by Friday had a job, a flat and a cold.
Shares of the company fell as much as 12 percent in early trading before recovering to close 2 percent lower at 41.07.
""".splitlines()

# Each sentence alone, and each followed by another.
PAIRS = [(text, None) for text in SENTENCES] + list(zip(SENTENCES, SENTENCES[5:] + SENTENCES[:5], strict=True))


@pytest.mark.parametrize("fixture, pooler", [("minilm_folder", True), ("bert_tiny_folder", False)])
@pytest.mark.filterwarnings("ignore::kbert.errors.NewWeightsWarning")
def test_vectors_of_64_texts_and_pairs_are_those_of_transformers(request, fixture, pooler):
    torch = pytest.importorskip("torch", reason="to compare, run: pip install 'kbert-learn[parity]'")
    transformers = pytest.importorskip(
        "transformers", reason="to compare with it, run: pip install 'kbert-learn[parity]'"
    )
    folder = request.getfixturevalue(fixture)
    tokenizer = WordPieceTokenizer.from_pretrained(folder)
    rows = [tokenizer.encode(text, pair).ids for text, pair in PAIRS]
    assert len(rows) == 64 and max(map(len, rows)) > 5 * min(map(len, rows))

    length = max(map(len, rows))
    ids, segments, mask = (np.zeros((64, length), "int32") for _ in range(3))
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
        if PAIRS[i][1] is not None:
            segments[i, row.index(tokenizer.sep_id) + 1 : len(row)] = 1
    positions = np.broadcast_to(np.arange(length, dtype="int32"), ids.shape)

    reference = transformers.BertModel.from_pretrained(folder, add_pooling_layer=pooler).eval()
    with torch.no_grad():
        expected = reference(*(torch.tensor(a, dtype=torch.long) for a in (ids, mask, segments)))
    inputs = {"token_ids": ids, "segment_ids": segments, "position_ids": positions, "text_ids": mask}
    encoder = BertEncoder.from_pretrained(folder, dtype="float32")
    outputs = {name: keras.ops.convert_to_numpy(tensor) for name, tensor in encoder(inputs).items()}

    difference = np.abs(outputs["sequence_output"] - expected.last_hidden_state.numpy())[mask == 1]
    assert difference.max() <= 2e-5
    if pooler:
        assert np.abs(outputs["pooled_output"] - expected.pooler_output.numpy()).max() <= 2e-5
