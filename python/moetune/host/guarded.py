"""Arguments of one call in memory that notices when a kernel writes where it must not."""

from .runner import Arguments

BAND = 256
BAND_BYTE = 0xA7


class GuardedArray:
    """One array between two bands of known bytes."""

    def __init__(self, device, spec, data=None):
        self.spec = spec
        self._device = device
        self._memory = device.allocate(BAND + spec.bytes + BAND)
        self.raw = self._memory[BAND : BAND + spec.bytes]
        self.array = device.view(self.raw, spec)
        self._bands = [self._memory[:BAND], self._memory[BAND + spec.bytes :]]
        for band in self._bands:
            device.fill(band, BAND_BYTE)
        self._whole_band = device.allocate(BAND)
        device.fill(self._whole_band, BAND_BYTE)
        self._pristine = None
        if data is not None:
            device.write(self.raw, data)
            self._pristine = device.allocate(spec.bytes)
            self._pristine[:] = self.raw

    def poison(self):
        """Every byte 0xFF: NaN in every floating-point format."""
        self._device.fill(self.raw, 0xFF)

    def damage(self):
        """What was written to that must not be, now repaired; "": nothing."""
        for band, side in zip(self._bands, ("before the start of", "past the end of")):
            if not self._device.same(band, self._whole_band):
                self._device.fill(band, BAND_BYTE)
                return f"wrote {side} {self.spec.name}"
        if self._pristine is not None and not self._device.same(self.raw, self._pristine):
            self.raw[:] = self._pristine
            return f"changed its input {self.spec.name}"
        return ""


class GuardedArguments:
    """Inputs and outputs of one call, on the device."""

    def __init__(self, device, inputs, data, outputs):
        self.inputs = [GuardedArray(device, spec, data[spec.name]) for spec in inputs]
        self.outputs = [GuardedArray(device, spec) for spec in outputs]
        self.arguments = Arguments({each.spec.name: each.array for each in self.inputs + self.outputs})
        self.arguments.tokens = outputs[0].shape[0] if outputs and outputs[0].shape else 0

    def poison_outputs(self):
        for output in self.outputs:
            output.poison()

    def damage(self):
        found = [each.damage() for each in self.inputs + self.outputs]
        return "; ".join(words for words in found if words)
