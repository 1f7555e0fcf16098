// Package sometimes has a test that fails now and then.
package sometimes
