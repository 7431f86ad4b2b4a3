module github.com/culvert-proxy/culvert/interop/suite

go 1.26.0

require (
	github.com/culvert-proxy/culvert v0.0.0-00010101000000-000000000000
	github.com/culvert-proxy/culvert/tunnel v0.0.0
	github.com/go-logr/logr v1.4.4
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
	k8s.io/klog/v2 v2.140.0
	sigs.k8s.io/apiserver-network-proxy/konnectivity-client v0.30.3
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
)

replace (
	github.com/culvert-proxy/culvert => ../..
	github.com/culvert-proxy/culvert/tunnel => ../../tunnel
)
