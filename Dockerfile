FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/flowapi ./cmd/flowapi && mkdir /out/data

FROM gcr.io/distroless/static:nonroot
COPY --from=build /out/flowapi /usr/local/bin/flowapi
# The SQLite file lives in the working directory, unless FLOWAPI_DATABASE_URL names a PostgreSQL.
COPY --from=build --chown=nonroot:nonroot /out/data /data
WORKDIR /data
VOLUME /data
# Beyond loopback the server starts only with an admin token: give one in FLOWAPI_TOKEN.
ENV FLOWAPI_ADDR=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["flowapi"]
CMD ["serve"]
