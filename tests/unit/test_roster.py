from tests.helpers import tiny_federation, batchnorm_federation
def test_x():
    assert tiny_federation().roster.shared().size
    batchnorm_federation().roster.shared()
