"""Profile of a device: how long the project's own kernels take here, measured without a model.

In: numpy, ONNX Runtime and the kernels' library. Out: a `Profile`, a JSON file of at most 2 KB, which
`speccompile predict` takes in place of a data sheet.
Imported by `predict` and the command line; imports `bench`, `runtime` and `machine`.
"""

from speccompile.measure.profile.file import Profile as Profile
from speccompile.measure.profile.file import read_profile as read_profile
from speccompile.measure.profile.file import write_profile as write_profile
from speccompile.measure.profile.measure import measure_profile as measure_profile
from speccompile.measure.profile.own import has_own_profile as has_own_profile
from speccompile.measure.profile.own import keep as keep
from speccompile.measure.profile.own import own_profile as own_profile
