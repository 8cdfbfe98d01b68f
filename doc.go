// Package perdure is the root of the module: see docs/design.md for the rooms.
package perdure
