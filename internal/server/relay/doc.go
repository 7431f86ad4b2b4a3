// Package relay is the middle of the server: tunnels between a frontend and a
// backend, their life from dial to close, and the bytes in between.
//
// It knows neither gRPC nor TLS, Kubernetes or metrics. It declares the small
// interfaces that it needs (Frontend, Outlet, Router, Observer); the rooms
// around it are adapters.
package relay
