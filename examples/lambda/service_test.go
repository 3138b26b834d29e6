package main

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

type cloudRunService struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   metadata
	Spec       struct {
		Template struct {
			Metadata metadata
			Spec     struct {
				ContainerConcurrency int `yaml:"containerConcurrency"`
				TimeoutSeconds       int `yaml:"timeoutSeconds"`
				Containers           []struct {
					Image string
					Ports []struct {
						ContainerPort int `yaml:"containerPort"`
					}
					Env []struct {
						Name      string
						Value     string
						ValueFrom struct {
							SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
						} `yaml:"valueFrom"`
					}
					Resources    struct{ Limits map[string]string }
					StartupProbe struct {
						HTTPGet struct {
							Path string
							Port int
						} `yaml:"httpGet"`
						PeriodSeconds    int `yaml:"periodSeconds"`
						TimeoutSeconds   int `yaml:"timeoutSeconds"`
						FailureThreshold int `yaml:"failureThreshold"`
					} `yaml:"startupProbe"`
				}
			}
		}
	}
}

type metadata struct {
	Name        string
	Annotations map[string]string
}

func TestService(t *testing.T) {
	t.Parallel()
	var file cloudRunService
	decode(t, "service.yaml", &file)
	revision := file.Spec.Template
	if file.APIVersion != "serving.knative.dev/v1" || file.Kind != "Service" || len(revision.Spec.Containers) != 1 {
		t.Fatalf("the file has %+v, want a service of one container", file)
	}
	c := revision.Spec.Containers[0]
	env := map[string]string{}
	for _, v := range c.Env {
		if !slices.Contains(variables(t), v.Name) {
			t.Errorf("the program does not read %s; it reads %v", v.Name, variables(t))
		}
		env[v.Name] = v.Value + v.ValueFrom.SecretKeyRef.Name
	}
	if env["DATABASE_URL"] != "limiter-database-url" || env["TRUSTED_HOPS"] != "1" || env["PORT"] != "" {
		t.Errorf("the environment is %v; DATABASE_URL comes from the secret, one proxy is in front, and PORT is set by Cloud Run", env)
	}
	if len(c.Ports) != 1 || c.StartupProbe.HTTPGet.Port != c.Ports[0].ContainerPort {
		t.Errorf("the probe uses port %d, and the ports are %+v", c.StartupProbe.HTTPGet.Port, c.Ports)
	}
	if got := send(service(t, settings{}), "@", http.MethodGet, c.StartupProbe.HTTPGet.Path, "").Code; got != http.StatusNoContent {
		t.Errorf("the path of the probe gets %d", got)
	}
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	if seconds(c.StartupProbe.TimeoutSeconds) <= healthTimeout || c.StartupProbe.PeriodSeconds < c.StartupProbe.TimeoutSeconds {
		t.Errorf("the probe is %+v; a check can take %v", c.StartupProbe, healthTimeout)
	}
	if seconds(revision.Spec.TimeoutSeconds) <= slowest() {
		t.Errorf("the timeout of a request is %d s; a response can take %v", revision.Spec.TimeoutSeconds, slowest())
	}
	// Cloud Run kills a container 10 s after SIGTERM.
	if drainTimeout+healthTimeout > 10*time.Second {
		t.Errorf("draining can take %v; Cloud Run kills the process after 10 s", drainTimeout)
	}
	// The concurrent requests of an instance share its connections. 100 ms for two
	// decisions is a lot.
	if wait := time.Duration(revision.Spec.ContainerConcurrency) * 100 * time.Millisecond / serverConns; wait == 0 || wait > storeTimeout {
		t.Errorf("the last of %d concurrent requests waits %v for a connection", revision.Spec.ContainerConcurrency, wait)
	}
	var instances int
	if _, err := fmt.Sscan(revision.Metadata.Annotations["autoscaling.knative.dev/maxScale"], &instances); err != nil || instances*serverConns > maxConnections {
		t.Errorf("%d instances (%v) have %d connections, of %d", instances, err, instances*serverConns, maxConnections)
	}
}
