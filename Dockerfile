# A static binary in an image that holds nothing else but certificates, run as nobody. It has no PostgreSQL of its own:
# give it ERRAND_DATABASE_URL (docker-compose.yml does).
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /errand ./cmd/errand

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /errand /errand
USER 65532:65532
EXPOSE 8080
ENV ERRAND_LISTEN=:8080 ERRAND_DRAIN=5s
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["/errand", "health"]
ENTRYPOINT ["/errand"]
CMD ["serve"]
