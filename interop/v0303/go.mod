module github.com/culvert-proxy/culvert/interop/v0303

go 1.26.0

require github.com/culvert-proxy/culvert/interop/suite v0.0.0

require (
	github.com/culvert-proxy/culvert/tunnel v0.0.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	sigs.k8s.io/apiserver-network-proxy/konnectivity-client v0.30.3 // indirect
)

replace (
	github.com/culvert-proxy/culvert => ../..
	github.com/culvert-proxy/culvert/interop/suite => ../suite
	github.com/culvert-proxy/culvert/tunnel => ../../tunnel
)
