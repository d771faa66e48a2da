# The service alone: one binary, a C library and the certificates that vouch for brokers.
#
#   docker build -t bridge:0.1.0 .
#   docker run --read-only -v ./bridge.yaml:/etc/bridge/bridge.yaml:ro -v bridge:/var/lib/bridge bridge:0.1.0

FROM rust:1.89-slim-bookworm AS build
WORKDIR /src
COPY . .
# The caches are no part of a layer, so the binary is moved out of them in the same step. Names stay
# in it for the sake of a backtrace, lines do not.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package bridge --no-default-features \
        --config 'profile.release.strip = "debuginfo"' \
    && mkdir -p /out/data \
    && cp target/release/bridge /out/bridge

# No shell, no package manager. What the binary needs beside libc is in it: libgcc, the certificates
# of public authorities.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/bridge /usr/local/bin/bridge
# A new volume takes owner and mode from the folder that it is put over.
COPY --from=build --chown=65532:65532 --chmod=0750 /out/data /var/lib/bridge
# In digits, so that Kubernetes can tell that it is not root (runAsNonRoot).
USER 65532:65532
# All that is ever written. The root file system can be read-only.
VOLUME ["/var/lib/bridge"]
EXPOSE 9090
# Whether the process serves, and not whether the brokers are there: a container that is replaced for
# being unhealthy does not bring a broker back. Needs `monitor` in the configuration.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
    CMD ["/usr/local/bin/bridge", "health", "--level", "live"]
ENTRYPOINT ["/usr/local/bin/bridge"]
# Reads /etc/bridge/bridge.yaml. SIGTERM, which Docker stops with, is an orderly stop.
CMD ["run"]
