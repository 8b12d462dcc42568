"""A module of torch, learned as the perceptron is: samples, price, noise and steps are those of `PerceptronPlan`.

Opacus computes the gradient of each row, in 32-bit floating point. It is rounded to whole steps before anything is
added: from there on a person is clipped, people are summed and noise is drawn in integers. Opacus' own noise, sampler
and optimizer are not used.

**What floating point may do.** A library may round a row differently beside other rows, and then one person would move
the gradients of others by a last bit. Chunks therefore have one shape. Before the charge, made-up rows show whether a
row's gradient has the same bits wherever it stands in a chunk and whatever stands beside it; where it has not, each
person is computed alone. This is tried on made-up rows, and not proven.

**What leaves.** Parameters, each with noise in it. Buffers of a module stay as they were given, and the copy that rows
passed through is thrown away.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.analytic_gaussian import SMOOTHING
from deniable.errors import InternalError, MissingExtra, ParameterError
from deniable.learn.features import STEPS, ClassTarget, Design, Entries, LabelsTarget, Numbers
from deniable.learn.perceptron import FINE, Goal, PerceptronPlan, Wholes, plan_perceptron, scatter, split_persons
from deniable.policy.budget import Budget
from deniable.policy.schema import PrivacyUnit

UNIT = FINE * STEPS
"""Steps of a gradient: UNIT is 1."""
WIDEST = float(1 << 40)
"""Steps beyond which an entry of a row's gradient acts as this: sums over a person's rows stay exact."""
KEPT = 1 - 2.0**-30
TOGETHER, MOST_NUMBERS = 256, 1 << 24
"""Rows of a chunk, and the most numbers that their gradients are."""
MOST_PARAMETERS = 1 << 20
ARITHMETIC = "a row's gradient in 32-bit floating point; clipping, sums and noise in integers"


@dataclass(frozen=True, slots=True)
class TorchModule:
    """What may be written down of a module, and the module itself, without anything of a row."""

    text: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    """The parameters that are learned, in the order of the weights."""
    claimed: float
    """The epsilon that Opacus' own accountant claims for the turns, at the delta of the guarantee."""
    network: Any = field(default=None, repr=False, compare=False)
    """As it was given; None in a model that was read from a file."""

    @property
    def count(self) -> int:
        """How many weights there are."""
        return sum(math.prod(shape) for _, shape in self.shapes)

    def load(self, weights: Numbers) -> Any:
        """A copy of the module with these weights."""
        if self.network is None:
            raise ParameterError(
                "a model file has the weights of a module of torch, and not its code",
                remedy="Attach the module in Python: load_model(path).attach(module)",
            )
        torch, network = import_torch(), copy.deepcopy(self.network)
        with torch.no_grad():
            start = 0
            for each in list_parameters(network):
                piece = weights[start : start + each.numel()].reshape(each.shape)
                each.copy_(torch.from_numpy(np.array(piece, np.float32)))
                start += each.numel()
        return network

    def run(self, weights: Numbers, rows: Numbers) -> Numbers:
        """What comes out for rows of entries from -1 to 1, without that of the intercept."""
        torch, network = import_torch(), self.load(weights).eval()
        with torch.no_grad():
            return np.asarray(network(torch.from_numpy(rows.astype(np.float32))).numpy(), np.float64)


def read_module(network: Any, claimed: float = math.nan) -> TorchModule:
    """A module of torch, copied as it is."""
    torch = import_torch()
    if not isinstance(network, torch.nn.Module):
        raise ParameterError("the module is none of torch", expected="A torch.nn.Module, or a function that makes one")
    held = copy.deepcopy(network).cpu().float().train()
    shapes = tuple((name, tuple(each.shape)) for name, each in held.named_parameters() if each.requires_grad)
    return TorchModule(str(held), shapes, claimed, held)


def list_parameters(network: Any) -> list[Any]:
    """The parameters that are learned."""
    return [each for each in network.parameters() if each.requires_grad]


def import_torch() -> Any:
    """torch, where Opacus is there too."""
    try:
        import opacus  # noqa: F401
        import torch
    except ImportError:
        raise MissingExtra(
            "a module of torch is trained with torch and Opacus, which are not installed",
            remedy="Install them: pip install 'deniable[ml]'",
        ) from None
    return torch


@dataclass(frozen=True, slots=True)
class TorchPlan(PerceptronPlan):
    """A module of torch in place of the perceptron.

    **Guarantee.** That of `PerceptronPlan`, given that a row's gradient is a function of the row and of the weights
    alone: see the module. `clip_persons` bounds a person whatever the gradients are. **Utility.** That of the module.
    **Runtime.** turns passes of the module over samples, with a gradient for each row.
    """

    module: TorchModule = field(kw_only=True)
    together: int = field(kw_only=True)
    """The rows of a chunk."""
    alone: bool = field(default=False, kw_only=True)
    """Whether each person has a chunk of their own."""

    def place_weights(self) -> Numbers:
        """Those that the module came with."""
        held = [each.detach().numpy().ravel() for each in list_parameters(self.module.network)]
        return np.concatenate(held).astype(np.float64)

    def sum_gradients(self, weights: Numbers, entries: Entries, truth: Wholes, persons: Wholes) -> Wholes:
        """Of chunks of one shape, which hold whole persons."""
        total, network = np.zeros(len(weights), np.int64), watch_rows(self.module.load(weights))
        for rows in split_each(persons) if self.alone else split_persons(persons, self.together):
            found = compute_gradients(network, self.target, entries[rows], truth[rows], self.together)
            total += clip_persons(found, persons[rows], self.settings.most).sum(axis=0)
        return total


def plan_torch(
    design: Design, target: Goal, budget: Budget, unit: PrivacyUnit, given: Any, stated: tuple[float, float], **own: Any
) -> TorchPlan:
    """The plan of a module, or of what a function makes of the numbers of its inputs and outputs; it has seen no row.

    `stated` are the epsilon and delta of the guarantee: Opacus' accountant must not claim more for this noise.
    """
    torch, made = import_torch(), plan_perceptron(design, target, budget, unit, **own, calibrated=False)
    network = given if isinstance(given, torch.nn.Module) else given(made.design.width - 1, made.outputs)
    module = read_module(network, claim_by_opacus(made, *stated))
    refuse_module(module, made)
    together = max(unit.rows_learned, min(TOGETHER, MOST_NUMBERS // module.count))
    same = {each.name: getattr(made, each.name) for each in fields(PerceptronPlan)}
    plan = TorchPlan(**same, module=module, together=together)
    return plan if is_steady(plan) else TorchPlan(**same, module=module, together=unit.rows_learned, alone=True)


def claim_by_opacus(plan: PerceptronPlan, epsilon: float, delta: float) -> float:
    """The epsilon that Opacus' accountant (Gopi, Lee, Wutschitz 2021) claims for the turns; more than ours is refused.

    What is charged is ours, which has room for the counts and for rounding against the one who asks.
    """
    from opacus.accountants import PRVAccountant

    noise = math.sqrt((plan.mechanism.variance - SMOOTHING) / plan.mechanism.sensitivity_squared)
    accountant, close = PRVAccountant(), min(0.01, epsilon / 50)
    accountant.history = [(noise, float(plan.settings.rate), plan.settings.turns)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the grid that it starts from
        claimed = float(accountant.get_epsilon(delta, eps_error=close))
    if not claimed <= epsilon + close:
        raise InternalError(
            "Opacus' accountant claims a larger epsilon than ours for the same noise",
            remedy="Use another rate or number of turns, and report it; nothing was run",
        )
    return claimed


def refuse_module(module: TorchModule, plan: PerceptronPlan) -> None:
    """Refuse what Opacus refuses, and what does not fit the entries and the target."""
    from opacus.validators import ModuleValidator

    if not 1 <= module.count <= MOST_PARAMETERS:
        raise ParameterError(
            f"the module has {module.count} parameters to learn", expected=f"From 1 to {MOST_PARAMETERS} of them"
        )
    found = ModuleValidator.validate(module.network, strict=False)
    if found:
        raise ParameterError(
            f"Opacus refuses the module: {found[0]}",
            expected="Layers whose output for a row depends on that row alone",
            remedy="Replace such layers, as BatchNorm by GroupNorm or LayerNorm",
        )
    width, outputs = plan.design.width - 1, plan.outputs
    expected = f"A float tensor of 2 rows and {width} columns in, one of 2 rows and {outputs} columns out"
    try:
        shape = module.network(import_torch().zeros(2, width)).shape
    except (RuntimeError, ValueError, TypeError, IndexError) as problem:
        raise ParameterError(f"the module failed on two rows of zeros: {problem}", expected=expected) from None
    if tuple(shape) != (2, outputs):
        raise ParameterError(f"the module returns the shape {tuple(shape)} for two rows", expected=expected)


def is_steady(plan: TorchPlan) -> bool:
    """Whether a made-up row has a gradient of the same bits at every place of a chunk, beside any other rows.

    A module that does not give a row nearly the same gradient is refused: it draws numbers, or mixes rows.
    """
    size, width = plan.together, plan.design.width
    made = np.rint(scatter((size + 1) * width).reshape(size + 1, width) * STEPS).astype(np.int16)
    truth, network = np.zeros(size + 1, np.int64), watch_rows(plan.module.load(plan.place_weights()))
    wanted = compute_gradients(network, plan.target, made[:1], truth[:1], size)[0]
    steady = True
    for place in {0, 1, size // 2, size - 1} & set(range(size)):
        rows = np.insert(np.arange(1, size), place, 0)
        found = compute_gradients(network, plan.target, made[rows], truth[rows], size)[place]
        if not np.allclose(found, wanted, rtol=1e-3, atol=1e-4 * float(np.abs(wanted).max() + 1e-30)):
            raise ParameterError(
                "the module gives one row another gradient beside other rows, or when it is asked again",
                expected="A module whose output for a row depends on that row and the weights alone",
                remedy="Take out layers that draw random numbers (Dropout) or mix rows",
            )
        steady = steady and found.tobytes() == wanted.tobytes()
    return steady


def watch_rows(network: Any) -> Any:
    """The module with Opacus' hooks, which keep the gradient of each row."""
    from opacus import GradSampleModule

    return GradSampleModule(network, loss_reduction="sum")


def compute_gradients(network: Any, target: Goal, entries: Entries, truth: Wholes, size: int) -> NDArray[np.float32]:
    """The gradient of each row's loss, computed in a chunk of so many rows; rows of zeros fill it up."""
    torch = import_torch()
    held, wanted = np.zeros((size, entries.shape[1] - 1), np.float32), np.zeros(size, np.int64)
    held[: len(entries)], wanted[: len(truth)] = entries[:, 1:] / STEPS, truth
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about hooks of torch that Opacus uses
        find_losses(target, network(torch.from_numpy(held)), torch.from_numpy(wanted)).sum().backward()
    parts = [each.grad_sample.reshape(size, -1) for each in list_parameters(network)]
    network.zero_grad(set_to_none=True)
    return np.asarray(torch.cat(parts, dim=1)[: len(entries)].numpy(), np.float32)


def find_losses(target: Goal, outputs: Any, truth: Any) -> Any:
    """The loss of each row: logarithmic for values; for a number, squared and from 1 on straight (Huber 1964)."""
    functional = import_torch().nn.functional
    if isinstance(target, LabelsTarget):
        return functional.cross_entropy(outputs, truth, reduction="none")
    if isinstance(target, ClassTarget):
        return functional.binary_cross_entropy_with_logits(outputs[:, 0], truth.float(), reduction="none")
    return functional.huber_loss(outputs[:, 0], truth.float() / STEPS, reduction="none")


def split_each(persons: Wholes) -> list[NDArray[np.int64]]:
    """The rows of each person."""
    order = np.argsort(persons, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(persons[order])) + 1) if len(order) else []


def clip_persons(gradients: NDArray[np.float32], persons: Wholes, most: int) -> Wholes:
    """The sum of each person's gradients in whole steps, none longer than `most`; persons stand together.

    Floating point proposes how much to shorten. What is left is measured in integers, and who is not within the bound
    by that measure counts as nothing; a gradient that is no number counts as 0.
    """
    plain = np.nan_to_num(gradients.astype(np.float64) * UNIT, nan=0.0, posinf=WIDEST, neginf=-WIDEST)
    whole = np.rint(np.clip(plain, -WIDEST, WIDEST)).astype(np.int64)
    starts = np.flatnonzero(np.diff(persons, prepend=persons[:1] - 1))
    sums = np.add.reduceat(whole, starts, axis=0)
    lengths = np.sqrt((sums.astype(np.float64) ** 2).sum(axis=1))
    shorter = np.minimum(1.0, most / np.maximum(lengths, 1.0) * KEPT)
    cut = np.trunc(sums * shorter[:, None]).astype(np.int64)
    return np.asarray(cut * is_within(cut, most)[:, None], np.int64)


def is_within(vectors: Wholes, most: int) -> NDArray[np.bool_]:
    """Whether each vector is no longer than `most`, which is below 2**31: in integers.

    Floating point only rules out those whose squares might not fit 64 bits; they are too long by far.
    """
    near = (vectors.astype(np.float64) ** 2).sum(axis=1) < 2.0**62
    squares = ((vectors * near[:, None]) ** 2).sum(axis=1)
    return np.asarray(near & (squares <= most**2))
