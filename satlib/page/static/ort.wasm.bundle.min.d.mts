export * from "onnxruntime-web";
