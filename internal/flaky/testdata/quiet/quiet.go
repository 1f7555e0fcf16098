// Package quiet has tests that end without a word of their failure.
package quiet
