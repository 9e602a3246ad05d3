"""WHAT IS HANDED OVER: the exported folder with p_bar, Pi, frozen weights and ONNX."""
