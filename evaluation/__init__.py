"""Programs that know Gatebook only over HTTP: the demo agent and the measurements. They import none of its rooms."""
