# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""From a fusion's body to vector-stage loops, by walking indexing maps back from its roots.

`FusionBody` answers questions about the region, `Evaluator` emits any of its values at any index on demand,
`plan_nest` picks the loops of a root, `NestEmitter` writes them.
"""
