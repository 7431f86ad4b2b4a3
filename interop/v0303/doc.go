// Package v0303 runs the suite with version v0.30.3 of the public client library.
package v0303
