"""
A number for each text
======================

How urgent is a message, from 0 to 10? ``BertRegressor`` learns numbers.
"""

# %%
# The numbers of this example are made up from the department and from some words, so that there is
# something to learn:

import pandas as pd

messages = pd.read_csv("data/support_messages.csv")
by_label = {
    "technical": 7,
    "billing": 8,
    "delivery": 6,
    "returns": 4,
    "account": 5,
    "product_question": 1,
}
pressing = messages.message.str.contains("urgent|still|again|asap|now", case=False)
messages["urgency"] = messages.label.map(by_label) + 1.5 * pressing
train, test = messages[:300], messages[300:]

# %%
# Fit, and compare with the true numbers
# --------------------------------------

from sklearn.metrics import PredictionErrorDisplay

from kbert import BertRegressor

regressor = BertRegressor("minilm-l6", random_state=0)
regressor.fit(train.message, train.urgency)

display = PredictionErrorDisplay.from_estimator(
    regressor,
    test.message,
    test.urgency,
    kind="actual_vs_predicted",
    scatter_kwargs={"alpha": 0.5},
)
r2 = regressor.score(test.message, test.urgency)
display.ax_.set_title(f"R² {r2:.2f} on {len(test)} messages")
display.figure_.tight_layout()

# %%
# New messages:

new = ["do you have this in green?", "you charged me twice AGAIN, I want my money now"]
pd.Series(regressor.predict(new).round(1), index=new)
