// Package migrations holds the database schema as goose SQL files, embedded. It imports nothing of ours; package store
// applies them. Migrations only go forward in production, and the code before and after one must run on both sides.
package migrations

import "embed"

// FS holds the files, in its root.
//
//go:embed *.sql
var FS embed.FS
