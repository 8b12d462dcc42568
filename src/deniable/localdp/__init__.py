"""Local differential privacy: answers are randomized before they leave the person, so no curator need be trusted.

Each protocol is a frozen value that both ends share: the respondent's end calls `randomize`, the collector's end
calls `tally` and `estimate`. A randomizer is a fixed map from an answer and a few uniform integers to a response, so
its epsilon is not a claim but a count: the tests walk through every draw and compare the likelihood ratios."""
