# syntax=docker/dockerfile:1
#
#   docker build --target compile -t speccompile:compile .          recipes to bundles, TensorRT-RTX engines too; no GPU
#   docker build --target runtime -t speccompile:runtime .          bundles on the CPU
#   docker build --target runtime-gpu -t speccompile:runtime-gpu .  bundles on CUDA and TensorRT-RTX
#   docker build --target runtime-native -t speccompile:native .    bundles on the CPU, in C++: no Python, 40 MB and Debian
#
# Every package is pinned in scripts/docker/*.txt, which scripts/docker/lock writes. They are installed without asking
# for what they need, so that nothing comes in that is not listed there; `pip check` and the doctor find what lacks.

FROM python:3.11.17-slim-trixie AS python


FROM python AS builder
WORKDIR /source
RUN pip install --no-cache-dir --no-deps --only-binary=:all: setuptools==84.2.1


# The kernels and the runtime in C++ are compiled here, and an image without them is none. Neither the compiler nor CMake
# leaves this stage.
FROM builder AS wheel
RUN apt-get update \
    && apt-get install --no-install-recommends --yes g++=4:14.2.0-1 \
    && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir --no-deps --only-binary=:all: \
    auditwheel==6.8.2 cmake==4.4.4 ninja==1.13.2 packaging==26.3 pyelftools==0.33
ENV SPECCOMPILE_NATIVE=require
COPY pyproject.toml README.md LICENSE ./
COPY speccompile speccompile
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .


# What the image without Python has: the runtime of the wheel, and ONNX Runtime's library out of its own.
FROM builder AS native
COPY scripts/docker/runtime.txt ./
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps --no-compile --only-binary=:all: --target packages -c runtime.txt onnxruntime \
    && pip install --no-cache-dir --no-deps --no-compile --target packages /wheels/*.whl
WORKDIR /native/share/licenses
RUN install -D --mode 644 --target-directory onnxruntime \
        /source/packages/onnxruntime/LICENSE /source/packages/onnxruntime/ThirdPartyNotices.txt \
    && install -D --mode 644 --target-directory speccompile /source/packages/speccompile-*.dist-info/licenses/LICENSE \
    && cp --recursive /source/packages/speccompile/native/installed/. /native \
    && rm --force /native/lib/libtriton_speccompile.so \
    && cp /source/packages/onnxruntime/capi/libonnxruntime.so.1.* /native/lib/libonnxruntime.so.1


# NVIDIA publishes its libraries as wheels, and the package that loads them as source.
FROM builder AS tensorrt-rtx-wheel
COPY scripts/docker/compile.txt ./
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels -c compile.txt tensorrt-rtx-cu13


# The environments are made where they will lie, because their programs name their own folder.
FROM python AS environment
WORKDIR /requirements
RUN python -m venv --without-pip /venv
ENV PIP_PYTHON=/venv/bin/python


FROM environment AS runtime-environment
COPY scripts/docker/runtime.txt ./
RUN pip install --no-cache-dir --no-deps --only-binary=:all: -r runtime.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl \
    && pip check \
    && /venv/bin/speccompile doctor --require run --require run_kernels


# onnxruntime-gpu takes the place of onnxruntime, which pip would miss: nothing is checked here but by the doctor.
FROM environment AS runtime-gpu-environment
COPY --from=tensorrt-rtx-wheel /wheels /built
COPY scripts/docker/runtime-gpu.txt ./
RUN pip install --no-cache-dir --no-deps --only-binary=:all: --find-links /built -r runtime-gpu.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl \
    && /venv/bin/speccompile doctor --require run --require run_kernels --require build_tensorrt_rtx


# torch's own index has it without CUDA's libraries.
FROM environment AS compile-environment
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --no-deps --only-binary=:all: --index-url "${TORCH_INDEX}" torch==2.13.0+cpu
COPY --from=tensorrt-rtx-wheel /wheels /built
COPY scripts/docker/compile.txt ./
RUN pip install --no-cache-dir --no-deps --only-binary=:all: --find-links /built -r compile.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl \
    && pip check \
    && /venv/bin/speccompile doctor --require compile --require run_kernels --require build_tensorrt_rtx


# What the images share. Bundles and recipes are mounted on /data; /cache keeps checkpoints from the Hub and engines.
# Both can be written by everybody, for `docker run --user`.
FROM python AS application
LABEL org.opencontainers.image.title="speccompile" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11.17-slim-trixie"
RUN useradd --uid 1000 --no-create-home --home-dir /cache speccompile \
    && install --directory --owner speccompile --mode 1777 /cache /data
ENV PATH=/venv/bin:$PATH HOME=/cache XDG_CACHE_HOME=/cache
WORKDIR /data
VOLUME ["/data", "/cache"]
USER 1000:1000
ENTRYPOINT ["speccompile"]
CMD ["--help"]


FROM application AS runtime
LABEL org.opencontainers.image.description="Runs speccompile bundles with ONNX Runtime on a CPU"
COPY --from=runtime-environment /venv /venv
HEALTHCHECK --interval=5m --timeout=60s --start-period=1m --start-interval=5s \
    CMD ["speccompile", "doctor", "--require", "run"]


FROM application AS runtime-gpu
LABEL org.opencontainers.image.description="Runs speccompile bundles with CUDA and TensorRT-RTX on an NVIDIA GPU" \
      org.opencontainers.image.licenses="Apache-2.0 AND LicenseRef-NVIDIA-Proprietary"
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=runtime-gpu-environment /venv /venv
HEALTHCHECK --interval=5m --timeout=60s --start-period=1m --start-interval=5s \
    CMD ["speccompile", "doctor", "--require", "run_cuda", "--require", "run_tensorrt_rtx"]


FROM application AS compile
LABEL org.opencontainers.image.description="Compiles speccompile bundles, TensorRT-RTX engines included, without a GPU" \
      org.opencontainers.image.licenses="Apache-2.0 AND LicenseRef-NVIDIA-Proprietary"
COPY --from=compile-environment /venv /venv
HEALTHCHECK --interval=5m --timeout=60s --start-period=1m --start-interval=5s \
    CMD ["speccompile", "doctor", "--require", "compile", "--require", "build_tensorrt_rtx"]


# The system of the stage in which the runtime was compiled, without Python.
FROM debian:13.7-slim AS runtime-native
LABEL org.opencontainers.image.title="speccompile" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0 AND MIT" \
      org.opencontainers.image.base.name="docker.io/library/debian:13.7-slim" \
      org.opencontainers.image.description="Runs speccompile bundles with ONNX Runtime on a CPU, without Python"
COPY --from=native /native /usr/local
RUN ldconfig \
    && useradd --uid 1000 --no-create-home --home-dir /cache speccompile \
    && install --directory --owner speccompile --mode 1777 /cache /data
ENV HOME=/cache XDG_CACHE_HOME=/cache SPECCOMPILE_ONNXRUNTIME=/usr/local/lib/libonnxruntime.so.1
WORKDIR /data
VOLUME ["/data", "/cache"]
USER 1000:1000
ENTRYPOINT ["speccompile-native"]
CMD ["--help"]
HEALTHCHECK --interval=5m --timeout=60s --start-period=1m --start-interval=5s \
    CMD ["speccompile-native", "--version"]
