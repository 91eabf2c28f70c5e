"""Prediction of speed before a build: from a plan, and a device's profile or data sheet.

In: a `Plan`, which reads configs and headers of checkpoints, a `Profile` or a `DeviceRow`, acceptance by depth. Out: a
`Prediction`: memory, times of rounds, tokens a second as intervals, break-even acceptance. No torch, no build.
Imported by the command line; imports `recipe`, `profile` and `bench`.
"""

from speccompile.measure.predict.accept import read_acceptance as read_acceptance
from speccompile.measure.predict.costs import Costs as Costs
from speccompile.measure.predict.costs import DataSheetCosts as DataSheetCosts
from speccompile.measure.predict.costs import ProfileCosts as ProfileCosts
from speccompile.measure.predict.devices import device_rows as device_rows
from speccompile.measure.predict.devices import find_device as find_device
from speccompile.measure.predict.predict import Prediction as Prediction
from speccompile.measure.predict.predict import predict as predict
from speccompile.measure.predict.table import write_devices as write_devices
from speccompile.measure.predict.table import write_prediction as write_prediction
