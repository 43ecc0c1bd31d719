"""apitimewrapper's front door: a line for each call of torch and of MindSpore, on the screen and in performance.log.

from luxmeter.classic.apitimewrapper import start_hook_net, start_hook_torch_net, print
start_hook_net(hook_inside=False)
start_hook_torch_net(hook_inside=False)
"""

from luxmeter.classic.apitimewrapper.analysis import end_analysis, start_analysis
from luxmeter.classic.apitimewrapper.ms_wrap.hook_net import start_hook_net, stop_hook_net
from luxmeter.classic.apitimewrapper.ms_wrap.performance_cmp_new import performance_cmp
from luxmeter.classic.apitimewrapper.my_print import print
from luxmeter.classic.apitimewrapper.torch_wrap.hook_net import start_hook_torch_net, stop_hook_torch_net

__all__ = ["end_analysis", "performance_cmp", "print", "start_analysis", "start_hook_net", "start_hook_torch_net",
           "stop_hook_net", "stop_hook_torch_net"]  # fmt: skip
