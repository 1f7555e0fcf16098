// Package sample has tests for the tests of reliability.
package sample
