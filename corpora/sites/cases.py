"""Small programs that reach guard sites of torch's own Python which no program that ddefuzz draws gets to.

Programs call an op on inputs that are no views of each other. Sites in autograd's tracer, in the pickler of graphs and
behind another device need more than that: aliasing inputs, a function compiled from within, a fake tensor pickled.

    CASES: list of dicts
      id        what is special about it
      fn, args, unbacked   as in ../reported/cases.py
      reaches   the guard sites that it is for: (file, call as `ddefuzz sites` prints it)

expected.json holds the stage that gets there, and what torch 2.13.0 does in it. Eager takes every case.
"""
import torch
from functorch.compile import aot_function, nop
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx._graph_pickler import GraphPickler, Options

CASES = []

ALIASES = "torch/_functorch/_aot_autograd/functional_utils.py"
TRACER = "torch/_functorch/_aot_autograd/graph_capture_wrappers.py"
FAKES = "torch/_subclasses/meta_utils.py"


def case(id, args, *reaches, unbacked=None):
    def register(fn):
        CASES.append(dict(id=id, fn=fn, args=args, unbacked=unbacked, reaches=reaches))
        return fn
    return register


def two_of_one_storage():
    """Two tensors that share their memory and neither of which is the other's base."""
    x = torch.ones(4)
    return x, x.detach()


@case("aliasing_inputs_sizes", two_of_one_storage, (ALIASES, "guard_or_false(sym_eq(t1.size(), t2.size()))"),
      unbacked={1: [0]})
def _(x, y):
    # Without the copies of 0-d inputs, of which there are none, aot ends in an error before: "Expected
    # !size_bytes_is_heap_allocated_ to be true".
    x, y = [t.clone() if t.dim() == 0 else t for t in (x, y)]
    # Whether they overlap is asked before, and must be decided.
    torch._check(y.shape[0] >= 2)
    x.add_(1)
    return y


@case("aliasing_inputs_strides", lambda: (torch.ones(1), torch.ones(1)),
      (ALIASES, "guard_or_false(sym_eq(t1.stride(), t2.stride()))"), unbacked={1: [0]})
def _(x, w):
    # One element, so contiguous, whatever its stride.
    y = x.as_strided((1,), (w.shape[0],)).detach()
    return aot_function(mutate_one_return_other, fw_compiler=nop)(y, x, w)


@case("aliasing_inputs_offsets", lambda: (torch.ones(20), torch.ones(0)),
      (ALIASES, "guard_or_false(t1.storage_offset() == t2.storage_offset())"), unbacked={1: [0]})
def _(x, w):
    torch._check(w.shape[0] < 20)  # so they overlap
    y = x.as_strided((20,), (1,), w.shape[0]).detach()
    return aot_function(mutate_one_return_other, fw_compiler=nop)(y, x, w)


def mutate_one_return_other(y, x, w):
    x.add_(1)
    return y, w


@case("mask_made_and_used_in_a_joint_graph", lambda: (torch.ones(5, requires_grad=True), torch.ones(5) > 0),
      (TRACER, "guard_or_true(sym_eq(out.shape, tangent.shape))"))
def _(x, mask):
    # Traced twice, once for the tangents: with no graph of dynamo's before, each time the mask's size is a new symbol.
    return aot_function(lambda x, mask: torch.masked_select(x, mask), fw_compiler=nop, dynamic=True)(x, mask)


@case("reshape_to_no_elements_and_more", lambda: (torch.ones(3, 5),),
      ("torch/_prims_common/__init__.py", "guard_or_false(numel == 0)"), unbacked={0: [0]})
def _(x):
    try:
        return x.reshape(0, -1)
    except RuntimeError:  # it never fits; what is asked is how to say so
        return x


@case("grid_sample_elsewhere", lambda: (torch.ones(1, 2, 4, 4), torch.ones(1, 3, 3, 2)),
      ("torch/_decomp/decompositions.py", "guard_or_false(sym_and(iH <= int32_max, iW <= int32_max))"),
      unbacked={0: [2]})
def _(x, grid):
    try:
        there = [torch.empty(tensor.shape, device="cuda") for tensor in (x, grid)]
        return torch._decomp.decompositions._grid_sampler_2d(*there, 0, 0, False, False)
    except (AssertionError, RuntimeError):  # a torch without cuda: a fake tensor may say it is there, and ends after
        return x


def pickled(x):
    """A fake tensor read back, as a process that compiles for another gets it; a real one as it is."""
    if not isinstance(x, FakeTensor):
        return x
    return GraphPickler.loads(GraphPickler.dumps(x, Options(ops_filter=None)), x.fake_mode)


@case("pickled_size", lambda: (torch.ones(5),), (FAKES, "guard_or_false(t.storage.size == 0)"), unbacked={0: [0]})
def _(x):
    return pickled(x)


@case("pickled_offset", lambda: (torch.ones(5), torch.ones(2)),
      (FAKES, "guard_or_false(r.storage_offset() == storage_offset)"), unbacked={1: [0]})
def _(x, w):
    return pickled(x.as_strided((2,), (1,), w.shape[0]).detach())
