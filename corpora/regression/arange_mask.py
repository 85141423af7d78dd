# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: n = sizes(2, 4)
def program(n: Int64[Tensor, "2"]):
    longest = n.max().item()
    columns = torch.arange(longest)
    return columns < n.unsqueeze(-1)
