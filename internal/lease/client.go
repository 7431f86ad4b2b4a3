package lease

import (
	"fmt"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ClientConfig says how the Kubernetes API is reached. COMPAT 3.1, 3.2.
type ClientConfig struct {
	Kubeconfig  string  // file; empty means the pod's own account
	ContentType string  // of requests
	QPS         float32 // 0 means the client's default
	Burst       int     // 0 means the client's default
}

// REST is the same as client-go wants it, for clients of other objects too.
func (cfg ClientConfig) REST() (*rest.Config, error) {
	var api *rest.Config
	var err error
	if cfg.Kubeconfig == "" {
		if api, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("no --kubeconfig and no account of a pod: %w", err)
		}
	} else if api, err = clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig); err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", cfg.Kubeconfig, err)
	}
	api.ContentType = cfg.ContentType
	api.AcceptContentTypes = cfg.ContentType + ",application/json"
	api.QPS, api.Burst = cfg.QPS, cfg.Burst
	return api, nil
}

// NewClient returns a client for Lease objects. It asks nothing of the API yet.
func NewClient(cfg ClientConfig) (coordinationclient.LeasesGetter, error) {
	api, err := cfg.REST()
	if err != nil {
		return nil, err
	}
	return coordinationclient.NewForConfig(api)
}
