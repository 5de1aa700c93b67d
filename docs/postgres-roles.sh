#!/bin/bash
# Makes the two roles and the database, once, when the cluster is new. The owner migrates; the runtime owns nothing.
set -euo pipefail
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
  -v owner_password="$ERRAND_OWNER_PASSWORD" -v runtime_password="$ERRAND_RUNTIME_PASSWORD" <<'SQL'
CREATE ROLE errand_owner LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'owner_password';
CREATE ROLE errand_runtime LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'runtime_password';
CREATE DATABASE errand OWNER errand_owner;
SQL
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname errand -c 'ALTER SCHEMA public OWNER TO errand_owner'
