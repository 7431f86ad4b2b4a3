// Package v0371 runs the suite with version v0.37.1 of the public client library.
package v0371
