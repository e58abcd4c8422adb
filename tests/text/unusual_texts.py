"""Texts that tokenizers disagree on."""

NASTY = [
    "",
    " \t\n\r  ",
    "e\u0301 A\u030a o\u0302\u0323 \u1e69 s\u0323\u0307 \u0958 \u0915\u093f",  # combining marks, in several orders
    "\u0301\u0302 leading marks",
    "\u6771\u4eac is \u5317\u4eac\u3002\u4f60\u597d\uff0c\u4e16\u754c \U00020000 \u3042\u30a2 \ud55c\uad6d",  # CJK
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \u2764\ufe0f \U0001f1e9\U0001f1ea family",  # ZWJ
    "zero\u200bwidth\u200cnon\u200djoiner\u2060word\ufeffbom soft\u00adhyphen",
    "control\x01\x02\x7f\x85\x9f chars \x1b[0m bell\x07",
    "private \ue000\uf8ff\U000f0000 use, unassigned \u0378\U000e0fff, non\ufffecharacter\uffff",
    "nul\x00in\x00side \x00 and \ufffd replaced\ufffd",
    "a" * 250 + " " + "ab" * 50 + " " + "ab" * 51 + " end",  # words of 250, 100 and 102 characters
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e9\u05b8\u05dc\u05d5\u05b9\u05dd \u202eright to left\u202c",  # RTL
    "\u0130stanbul I\u0131 \u0131 \u0130\u0307 D\u0130YARBAKIR",  # Turkish dotted and dotless i
    "\ufb01ne \ufb02ow \ufb03 \u0133 \u01c6 \u00c6on \u0152uvre \u1e9e\u00df",  # ligatures
    "\uff26\uff55\uff4c\uff4c \uff37\uff49\uff44\uff54\uff48\uff01\uff11\uff12 \u3000space\u3000",  # full-width
    "\u0391\u03a3 \u03a3\u03a3 \u03bf\u03c3 \u039f\u0394\u039f\u03a3",  # final sigma
    "\u212b \u2126 \u212a \u211d \u2167 \u24b6 \u00bd x\u00b2 \u2122",  # letters that stand for others
    "nbsp\u00a0thin\u2009line\u2028para\u2029ogham\u1680end",
    "$+<=>^`|~ !\"#%&'()*,-./:;?@[\\]_{} \u00a1\u00bf \u2014\u2026 \u20ac\u00a3",
    "[SEP] [MASK] [CLS][PAD] [UNK] [sep] [unused1]",
    "##ing ## # [ ##",
    "don't U.S.A. 3.14 $1,000 e-mail@example.com http://x.y/z?q=1&r=2",
]
